/**
 * A server that answers each request as a script says: refusals, cuts, streams that break off.
 *
 * It speaks HTTP/1.1 on a real socket, so that what the client does about a broken connection is done
 * about a broken connection. The steps of a script are those of the repository's tests/client/vectors.
 */

import assert from "node:assert/strict";
import { createServer, type Server, type Socket } from "node:net";

export interface Step {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly problem?: Readonly<Record<string, unknown>>;
  readonly text?: string;
  readonly events?: readonly string[];
  readonly then?: "close" | "cut";
  readonly drop?: boolean;
}

export interface Asked {
  readonly method: string;
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

const NOT_SCRIPTED: Step = { status: 418, problem: { code: "not_scripted", message: "not in the script" } };

export class ScriptedServer {
  readonly asked: Asked[] = [];
  url = "";
  readonly #script: Step[];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(script: readonly Step[]) {
    this.#script = [...script];
    this.#server = createServer((socket) => this.#serve(socket));
  }

  /** Runs `use` with a server for this script; everything in it has to happen. */
  static async run(script: readonly Step[], use: (server: ScriptedServer) => Promise<void>): Promise<void> {
    const server = new ScriptedServer(script);
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    const address = server.#server.address();
    assert(address !== null && typeof address === "object");
    server.url = `http://127.0.0.1:${address.port}`;
    try {
      await use(server);
      assert.deepEqual(server.#script, [], "never asked for");
    } finally {
      for (const socket of server.#sockets) socket.destroy();
      await new Promise((resolve) => server.#server.close(resolve));
    }
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    let received = Buffer.alloc(0);
    socket.on("error", () => socket.destroy()); // the client went first, as clients may
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("data", (piece: Buffer) => {
      received = Buffer.concat([received, piece]);
      for (let asked = read(received); asked !== null; asked = read(received)) {
        received = received.subarray(asked.size);
        this.asked.push(asked);
        this.#answer(this.#script.shift() ?? NOT_SCRIPTED, socket);
      }
    });
  }

  #answer(step: Step, socket: Socket): void {
    if (step.drop === true) {
      socket.resetAndDestroy();
      return;
    }
    const { content, mediaType } = contentOf(step);
    const body = Buffer.from(content);
    const headers: Record<string, string> = { "Content-Type": mediaType };
    const endsWithConnection = step.events !== undefined || step.then !== undefined;
    if (step.then === "cut") headers["Transfer-Encoding"] = "chunked";
    else if (endsWithConnection) headers["Connection"] = "close";
    else headers["Content-Length"] = String(body.length);
    const lines = Object.entries({ ...headers, ...step.headers }).map(([name, value]) => `${name}: ${value}`);
    socket.write(Buffer.from([`HTTP/1.1 ${step.status ?? 200} Scripted`, ...lines, "", ""].join("\r\n")));
    if (step.then === "cut") {
      // In the middle of the body, as far as the client can tell.
      socket.end(Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from("\r\n")]));
    } else if (endsWithConnection) {
      socket.end(body);
    } else {
      socket.write(body);
    }
  }
}

function contentOf(step: Step): { content: string; mediaType: string } {
  if (step.problem !== undefined) {
    return {
      content: JSON.stringify({ status: step.status, ...step.problem }),
      mediaType: "application/problem+json",
    };
  }
  if (step.events !== undefined) return { content: step.events.join(""), mediaType: "text/event-stream" };
  if (step.text !== undefined) return { content: step.text, mediaType: "text/html" };
  return { content: JSON.stringify(step.json ?? {}), mediaType: "application/json" };
}

function read(received: Buffer): (Asked & { size: number }) | null {
  const end = received.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const [first = "", ...lines] = received.subarray(0, end).toString("utf-8").split("\r\n");
  const [method = "", target = ""] = first.split(" ");
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const size = end + 4 + Number(headers["content-length"] ?? 0);
  if (received.length < size) return null;
  return { method, target, headers, body: received.subarray(end + 4, size), size };
}
