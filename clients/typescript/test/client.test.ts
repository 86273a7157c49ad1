/** What is this client's own, and no case of all clients. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { inspect } from "node:util";
import { test } from "node:test";
import { Coatcheck, ConnectionFailedError, UnexpectedAnswerError } from "coatcheck";
import * as coatcheck from "coatcheck";
import { ScriptedServer } from "./scriptedServer.js";
import { JOB_ID, noting } from "./vectors.js";

test("a URL that cannot work is refused and not repeated", () => {
  const wrong = ["jobs.example.com", "ftp://example.com", "http://", "https://user:sesame@example.com"];
  for (const url of [...wrong, "https://example.com?x=1", "https://example.com#x", "https://example.com:port"]) {
    assert.throws(
      () => new Coatcheck({ url }),
      (error) => error instanceof TypeError && error.message.startsWith("url ") && !error.message.includes("sesame"),
      url,
    );
  }
  assert.throws(() => new Coatcheck({ apiKey: "a", token: "b" }), TypeError);
  assert.throws(() => new Coatcheck({ apiKey: "a b" }), TypeError);
  assert.throws(() => new Coatcheck({ timeoutMs: 0 }), TypeError);
});

test("no credential is shown, and none is sent where there is none", () =>
  ScriptedServer.run([{ json: { items: [] } }], async (server) => {
    assert(!inspect(new Coatcheck({ apiKey: "cck_a_sesame" }), { depth: 9, showHidden: true }).includes("sesame"));
    await new Coatcheck({ url: server.url, apiKey: "" }).usage();
    assert.equal(server.asked[0]?.headers["authorization"], undefined);
  }));

test("a listing goes on to its last page, and not for ever", async () => {
  const page = { items: [{ id: "a" }], next: "more" };
  const gathered = async (answers: Parameters<typeof ScriptedServer.run>[0]): Promise<[unknown[], string[]]> => {
    const found: unknown[] = [];
    const asked: string[] = [];
    await ScriptedServer.run(answers, async (server) => {
      try {
        for await (const job of new Coatcheck({ url: server.url, apiKey: "k" }).jobs.list({ lane: "bulk" })) found.push(job.id);
      } finally {
        asked.push(...server.asked.map((each) => each.target));
      }
    });
    return [found, asked];
  };
  const [found, asked] = await gathered([{ json: page }, { json: { items: [{ id: "b" }], next: null } }]);
  assert.deepEqual(found, ["a", "b"]);
  assert(asked[1]?.includes("lane=bulk") && asked[1].includes("cursor=more"), asked[1]);
  for (const last of [page, { items: [] }, { next: null }]) {
    await assert.rejects(gathered([{ json: page }, { json: last }]), UnexpectedAnswerError);
  }
});

test("a signed URL of another server gets no credential", () =>
  ScriptedServer.run([{ text: "hello" }], async (server) => {
    const client = new Coatcheck({ url: "http://127.0.0.1:9", apiKey: "cck_a_sesame" });
    const sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    const bytes = await client.download({ signed_url: `${server.url}/blob?sig=x`, bytes: 5, sha256 });
    assert.equal(new TextDecoder().decode(bytes), "hello");
    assert.equal(server.asked[0]?.headers["authorization"], undefined);
  }));

test("a download goes on where it broke, whether the server can do that or starts over", async () => {
  const file = { signed_url: "/v1/blobs/x", bytes: 10, sha256: "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882" };
  const partial = { status: 206, text: "56789" };
  for (const second of [partial, { text: "0123456789" }]) {
    await ScriptedServer.run([{ text: "01234", then: "cut" as const }, second], async (server) => {
      const { client, pauses } = noting({ url: server.url });
      assert.equal(new TextDecoder().decode(await client.download(file)), "0123456789");
      assert.equal(server.asked[1]?.headers["range"], "bytes=5-");
      assert.deepEqual(pauses, [0.3125]);
    });
  }
  await ScriptedServer.run([{ text: "012345678x" }], async (server) => {
    await assert.rejects(noting({ url: server.url }).client.download(file), UnexpectedAnswerError);
  });
});

test("a server that falls silent is given up, and a caller that leaves is let go", async () => {
  const silent = createServer(() => undefined);
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const address = silent.address();
  assert(address !== null && typeof address === "object");
  const url = `http://127.0.0.1:${address.port}`;
  const hasty = new Coatcheck({ url, timeoutMs: 20, maxRetries: 0 });
  await assert.rejects(hasty.usage(), (error) => error instanceof ConnectionFailedError && /0\.02 s/.test(error.message));
  const leaving = new AbortController();
  const asking = new Coatcheck({ url }).usage({ signal: leaving.signal });
  leaving.abort(new Error("seen enough"));
  await assert.rejects(asking, /seen enough/);
  await assert.rejects(new Coatcheck({ url }).usage({ signal: AbortSignal.abort(new Error("too late")) }), /too late/);
  silent.close();
});

test("leaving a stream early ends its connection", () =>
  ScriptedServer.run([{ events: ["id: 1\nevent: log\ndata: {}\n\n", "id: 2\nevent: log\ndata: {}\n\n"] }], async (server) => {
    const { client } = noting({ url: server.url });
    for await (const event of client.job("docs", JOB_ID).stream()) {
      assert.equal(event.id, "1");
      break;
    }
  }));

test("a voice is not uploaded twice where the first may have arrived", () =>
  ScriptedServer.run([{ drop: true }], async (server) => {
    const { client } = noting({ url: server.url });
    await assert.rejects(client.speech.createVoice(new Blob(["x"])), ConnectionFailedError);
  }));

test("the package has these names", () => {
  assert.deepEqual(Object.keys(coatcheck).sort(), [
    "ApiError",
    "AuthenticationError",
    "Batch",
    "BatchFailedError",
    "Chat",
    "Coatcheck",
    "CoatcheckError",
    "ConflictError",
    "ConnectionFailedError",
    "ExportFailedError",
    "InvalidRequestError",
    "InvalidWebhookError",
    "Job",
    "JobFailedError",
    "NotFoundError",
    "PaymentRequiredError",
    "PermissionDeniedError",
    "PollingTimeoutError",
    "RateLimitedError",
    "ServerError",
    "SpeechTask",
    "UnexpectedAnswerError",
    "WaitTimeoutError",
    "verifyWebhook",
  ]);
});
