/** Texts, spoken by voices of the users' own. */

import { withQuery } from "./addresses.js";
import type { SpeechTaskBody, SpeechTicket, Voice } from "./bodies.js";
import { JobFailedError, UnexpectedAnswerError } from "./errors.js";
import type { Answer } from "./exchange.js";
import { fetchWhole } from "./files.js";
import { JobHandle, type CallOptions, type JobUrls, type Tools } from "./jobHandle.js";
import { urlsBelow } from "./job.js";
import { everyItem } from "./pages.js";
import { submissionHeaders } from "./requestHeaders.js";

const PAGE_ITEMS = 200;

export interface GenerateSpeech {
  readonly voiceId: string;
  readonly text: string;
  /** Such as `en` or `pt-BR`. */
  readonly language: string;
}

export interface GenerateSpeechOptions extends CallOptions {
  readonly idempotencyKey?: string | undefined;
  readonly webhookUrl?: string | undefined;
  readonly stateWebhookUrl?: string | undefined;
}

export type SpeechResult = NonNullable<SpeechTaskBody["result"]>;

export class Speech {
  constructor(private readonly tools: Tools) {}

  /** Upload reference audio: a WAV file that plays for 1 second to 10 minutes. Sent once: a lost answer may hide a voice. */
  async createVoice(file: Blob, options: CallOptions = {}): Promise<Voice> {
    const form = new FormData();
    form.append("file", file, "reference.wav");
    const url = this.tools.addresses.speech("voices");
    const sent = { body: form, isRepeatable: false, signal: options.signal };
    return (await this.tools.exchange.send("POST", url, sent)).object<Voice>();
  }

  /** Your voices, newest first, asked for page by page. */
  async *voices(options: CallOptions = {}): AsyncGenerator<Voice, void, void> {
    const url = withQuery(this.tools.addresses.speech("voices"), { limit: PAGE_ITEMS });
    yield* everyItem<Voice>(this.tools.exchange, url, options.signal);
  }

  /** Hand a text in. When this resolves, the task is durable. */
  async generate(wanted: GenerateSpeech, options: GenerateSpeechOptions = {}): Promise<SpeechTask> {
    const { idempotencyKey, webhookUrl, stateWebhookUrl, signal } = options;
    const answer = await this.tools.exchange.send("POST", this.tools.addresses.speech("generate"), {
      headers: submissionHeaders({ idempotencyKey, contentType: "application/json" }),
      body: JSON.stringify({
        voice_id: wanted.voiceId,
        text: wanted.text,
        language: wanted.language,
        ...(webhookUrl === undefined ? {} : { webhook_url: webhookUrl }),
        ...(stateWebhookUrl === undefined ? {} : { state_webhook_url: stateWebhookUrl }),
      }),
      signal,
    });
    return SpeechTask.from(this.tools, answer);
  }

  /** The handle of a task whose id is known. Nothing is asked yet. */
  task(id: string): SpeechTask {
    return new SpeechTask(this.tools, id, urlsBelow(this.tools.addresses.speech("tasks", id)), null);
  }
}

/** A text that is spoken. `wait` resolves to where its audio is. */
export class SpeechTask extends JobHandle<SpeechTaskBody, SpeechResult> {
  readonly #tools: Tools;

  /** @internal Use `client.speech.generate`, or `client.speech.task`. */
  constructor(tools: Tools, id: string, urls: JobUrls, answer: Answer | null) {
    super(tools.exchange, id, urls, answer);
    this.#tools = tools;
  }

  /** @internal */
  static from(tools: Tools, answer: Answer): SpeechTask {
    const shown = answer.object<Partial<SpeechTicket> & Partial<SpeechTaskBody>>();
    const id = shown.task_id ?? shown.id;
    if (typeof id !== "string" || shown.urls === undefined) {
      throw new UnexpectedAnswerError("the answer does not show a task");
    }
    const task = new SpeechTask(tools, id, urlsBelow(tools.addresses.named(shown.urls.poll)), answer);
    task.learnTicket(shown);
    return task;
  }

  /** Waits for the audio, and fetches it: a WAV file, compared with its checksum. */
  async audio(options: CallOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    await this.wait(options);
    const [file] = await this.artifacts(options);
    if (file === undefined) throw new UnexpectedAnswerError("the task has completed without any audio");
    const url = this.#tools.addresses.signed(file.signed_url);
    return fetchWhole(this.#tools.exchange, url, file.bytes, file.sha256, options.signal);
  }

  protected override stateOf(body: SpeechTaskBody): string {
    return body.status;
  }

  protected override outcome(body: SpeechTaskBody): SpeechResult {
    if (body.status === "completed" && body.result !== null) return body.result;
    const reason = body.error ?? "The server does not say why.";
    throw new JobFailedError(body.id, body.status, body.error_code ?? body.status, reason, body);
  }
}
