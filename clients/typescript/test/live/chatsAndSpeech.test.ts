import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { JobFailedError } from "coatcheck";
import { collected, connect, setting } from "./server.js";

const client = connect();
const messages = [{ role: "user", content: "Say something." }];

test("a chat is heard as it is said, and again from any piece on", async () => {
  const chat = await client.llm.chat({ model: "llama3.2", messages });
  const parts = await collected(chat.parts());
  const said = parts.map((part) => part.text).join("");
  const result = await chat.wait();
  assert.equal(result.message?.content, said);
  assert(said.length > 0);
  const rest = await collected(client.llm.job(chat.id).parts({ after: parts[0]?.id ?? null }));
  assert.equal(rest.length, parts.length - 1);
});

test("a chat with nobody fails", async () => {
  const chat = await client.llm.chat({ model: "no-such-model", messages });
  const failure = (error: unknown): boolean => error instanceof JobFailedError && error.code === "model_not_found";
  await assert.rejects(chat.wait({ timeoutMs: 60_000 }), failure);
  await assert.rejects(collected(chat.parts()), failure);
});

test("a text is spoken by a voice", async () => {
  const reference = new Blob([await readFile(setting("COATCHECK_REFERENCE_WAV"))]);
  const { voice_id: voiceId } = await client.speech.createVoice(reference);
  assert((await collected(client.speech.voices())).some((voice) => voice.voice_id === voiceId));
  const task = await client.speech.generate({ voiceId, text: "Your coat is ready.", language: "en" });
  const result = await task.wait({ timeoutMs: 60_000 });
  assert(result.duration_seconds > 0);
  const audio = await task.audio();
  assert.equal(new TextDecoder().decode(audio.slice(0, 4)), "RIFF");
});

test("a voice is previewed by its description", async () => {
  const wanted = { description: "A deep, calm voice.", text: "Your coat is ready.", language: "en" };
  const task = await client.speech.previewDesign(wanted);
  const result = await task.wait({ timeoutMs: 60_000 });
  assert(result.duration_seconds > 0);
  assert.equal((await task.status()).type, "design_preview");
});

test("all tasks are followed as they change", async () => {
  const task = await client.speech.previewDesign({ description: "Bright.", text: "Follow me.", language: "en" });
  const beforeAll = "3:3:"; // so that an end that came meanwhile is told, too
  for await (const event of client.speech.changes({ after: beforeAll })) {
    assert.equal(event.name, "task");
    if (event.data.id === task.id && event.data.terminal) break;
  }
});
