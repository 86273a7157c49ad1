/** `client.speech`: text to speech with users' own voices. */

import { withQuery } from "./addresses.js";
import type { SpeechTaskBody, SpeechTicket, Voice } from "./bodies.js";
import { JobFailedError, UnexpectedAnswerError } from "./errors.js";
import { followChanges, type ChangeEvent, type StreamOptions } from "./events.js";
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
  /** For example `en` or `pt-BR`. */
  readonly language: string;
  /** The id of a completed clone task, to speak with that clone. */
  readonly cloneId?: string | undefined;
}

export interface PreviewVoiceDesign {
  /** A description of the voice in words. */
  readonly description: string;
  readonly text: string;
  readonly language: string;
}

export interface CloneVoice {
  readonly voiceId: string;
  /** The language of the recording. */
  readonly language: string;
  /** The text of the recording. */
  readonly transcript?: string | undefined;
}

export interface GenerateSpeechOptions extends CallOptions {
  readonly idempotencyKey?: string | undefined;
  readonly webhookUrl?: string | undefined;
  readonly stateWebhookUrl?: string | undefined;
}

type AnyResult = NonNullable<SpeechTaskBody["result"]>;
/** The generated speech, with its download URL. */
export type SpeechResult = Required<
  Pick<AnyResult, "audio_object_key" | "audio_url" | "audio_url_expires_at" | "duration_seconds">
>;
/** The clone of a voice, with its download URL. */
export type CloneResult = Required<
  Pick<AnyResult, "prompt_object_key" | "prompt_url" | "prompt_url_expires_at" | "prompt_bytes">
>;

export class Speech {
  constructor(private readonly tools: Tools) {}

  /** Upload reference audio: a WAV file of 1 second to 10 minutes. Not retried: if the response is lost, the voice may exist. */
  async createVoice(file: Blob, options: CallOptions = {}): Promise<Voice> {
    const form = new FormData();
    form.append("file", file, "reference.wav");
    const url = this.tools.addresses.speech("voices");
    const sent = { body: form, isRepeatable: false, signal: options.signal };
    return (await this.tools.exchange.send("POST", url, sent)).object<Voice>();
  }

  /** Iterate over your voices, newest first. */
  async *voices(options: CallOptions = {}): AsyncGenerator<Voice, void, void> {
    const url = withQuery(this.tools.addresses.speech("voices"), { limit: PAGE_ITEMS });
    yield* everyItem<Voice>(this.tools.exchange, url, options.signal);
  }

  /** Submit a text to be spoken. When this resolves, the task is durable. */
  async generate(wanted: GenerateSpeech, options: GenerateSpeechOptions = {}): Promise<SpeechTask> {
    const body = {
      voice_id: wanted.voiceId,
      text: wanted.text,
      language: wanted.language,
      ...(wanted.cloneId === undefined ? {} : { clone_id: wanted.cloneId }),
    };
    return this.#submit<SpeechResult>(this.tools.addresses.speech("generate"), body, options);
  }

  /** Submit a text to be spoken by a described voice. When this resolves, the task is durable. */
  async previewDesign(wanted: PreviewVoiceDesign, options: GenerateSpeechOptions = {}): Promise<SpeechTask> {
    const body = { description: wanted.description, text: wanted.text, language: wanted.language };
    return this.#submit<SpeechResult>(this.tools.addresses.speech("voices", "design-preview"), body, options);
  }

  /** Submit a voice to be cloned by a remote. When this resolves, the task is durable. */
  async clone(wanted: CloneVoice, options: GenerateSpeechOptions = {}): Promise<SpeechTask<CloneResult>> {
    const body = {
      language: wanted.language,
      ...(wanted.transcript === undefined ? {} : { transcript: wanted.transcript }),
    };
    return this.#submit<CloneResult>(this.tools.addresses.speech("voices", wanted.voiceId, "clone"), body, options);
  }

  async #submit<Result extends AnyResult>(
    url: string,
    body: object,
    options: GenerateSpeechOptions,
  ): Promise<SpeechTask<Result>> {
    const { idempotencyKey, webhookUrl, stateWebhookUrl, signal } = options;
    const answer = await this.tools.exchange.send("POST", url, {
      headers: submissionHeaders({ idempotencyKey, contentType: "application/json" }),
      body: JSON.stringify({
        ...body,
        ...(webhookUrl === undefined ? {} : { webhook_url: webhookUrl }),
        ...(stateWebhookUrl === undefined ? {} : { state_webhook_url: stateWebhookUrl }),
      }),
      signal,
    });
    return SpeechTask.from<Result>(this.tools, answer);
  }

  /**
   * Stream your tasks as they change, without an end, beginning with the unfinished ones. A broken connection is reopened,
   * without lost or repeated events. `after` is the id of the last received event.
   */
  changes(options: StreamOptions = {}): AsyncGenerator<ChangeEvent<SpeechTaskBody>, void, void> {
    return followChanges<SpeechTaskBody>(this.tools.exchange, this.tools.addresses.speech("tasks", "events"), options);
  }

  /** The handle of a task with a known id. It sends no request yet. */
  task(id: string): SpeechTask {
    return new SpeechTask(this.tools, id, urlsBelow(this.tools.addresses.speech("tasks", id)), null);
  }
}

/** A speech or clone task. `wait` resolves to its result with the download URL. */
export class SpeechTask<Result extends AnyResult = SpeechResult> extends JobHandle<SpeechTaskBody, Result> {
  readonly #tools: Tools;

  /** @internal Use `client.speech.generate`, or `client.speech.task`. */
  constructor(tools: Tools, id: string, urls: JobUrls, answer: Answer | null) {
    super(tools.exchange, id, urls, answer);
    this.#tools = tools;
  }

  /** @internal */
  static from<Result extends AnyResult>(tools: Tools, answer: Answer): SpeechTask<Result> {
    const shown = answer.object<Partial<SpeechTicket> & Partial<SpeechTaskBody>>();
    const id = shown.task_id ?? shown.id;
    if (typeof id !== "string" || shown.urls === undefined) {
      throw new UnexpectedAnswerError("the answer is not a speech task");
    }
    const task = new SpeechTask<Result>(tools, id, urlsBelow(tools.addresses.named(shown.urls.poll)), answer);
    task.learnTicket(shown);
    return task;
  }

  /** Wait for the audio or the clone's file, download it, and verify its checksum. */
  async audio(options: CallOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    await this.wait(options);
    const [file] = await this.artifacts(options);
    if (file === undefined) throw new UnexpectedAnswerError("the completed task has no file");
    const url = this.#tools.addresses.signed(file.signed_url);
    return fetchWhole(this.#tools.exchange, url, file.bytes, file.sha256, options.signal);
  }

  protected override stateOf(body: SpeechTaskBody): string {
    return body.status;
  }

  protected override outcome(body: SpeechTaskBody): Result {
    if (body.status === "completed" && body.result !== null) return body.result as Result;
    const reason = body.error ?? "The server does not say why.";
    throw new JobFailedError(body.id, body.status, body.error_code ?? body.status, reason, body);
  }
}
