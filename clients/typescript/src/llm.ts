/** `client.llm`: queued chats with language models. */

import type { ChatBody, ChatTicket } from "./bodies.js";
import { JobFailedError, UnexpectedAnswerError } from "./errors.js";
import type { StreamOptions } from "./events.js";
import type { Answer } from "./exchange.js";
import { JobHandle, type CallOptions, type JobUrls, type Tools } from "./jobHandle.js";
import { urlsBelow } from "./job.js";
import { submissionHeaders } from "./requestHeaders.js";

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
  readonly [field: string]: unknown;
}

/** A body of Ollama's `/api/chat`, or of its `/api/generate` with `prompt` instead of `messages`. */
export interface ChatRequest {
  readonly model: string;
  readonly messages?: readonly ChatMessage[];
  readonly prompt?: string;
  readonly [field: string]: unknown;
}

/** The target's response, as to a request without streaming. */
export interface ChatResult {
  readonly message?: ChatMessage;
  readonly response?: string;
  readonly [field: string]: unknown;
}

export interface ChatOptions extends CallOptions {
  readonly idempotencyKey?: string | undefined;
  /** The URL to notify when the job finishes. */
  readonly webhookUrl?: string | undefined;
  /** The URL to notify of every state change. */
  readonly stateWebhookUrl?: string | undefined;
}

/**
 * A part of an answer. `restarted` means that the job started again: discard everything before this part.
 * Pass `id` to `parts({ after: id })` to resume after it.
 */
export interface ChatPart {
  readonly text: string;
  readonly restarted: boolean;
  readonly raw: Readonly<Record<string, unknown>>;
  readonly id: string | null;
}

export class Llm {
  constructor(private readonly tools: Tools) {}

  /** Submit a chat. When this resolves, it is durable. `wait` returns the answer, `parts` streams it. */
  async chat(request: ChatRequest, options: ChatOptions = {}): Promise<Chat> {
    const body = {
      ...request,
      ...(options.webhookUrl === undefined ? {} : { webhook_url: options.webhookUrl }),
      ...(options.stateWebhookUrl === undefined ? {} : { state_webhook_url: options.stateWebhookUrl }),
    };
    const answer = await this.tools.exchange.send("POST", this.tools.addresses.chats(), {
      headers: submissionHeaders({ idempotencyKey: options.idempotencyKey, contentType: "application/json" }),
      body: JSON.stringify(body),
      signal: options.signal,
    });
    return Chat.from(this.tools, answer);
  }

  /** The handle of a chat with a known id. It sends no request yet. */
  job(id: string): Chat {
    return new Chat(this.tools, id, urlsBelow(this.tools.addresses.chat(id)), null);
  }
}

/** A chat. `wait` resolves to the model's answer. */
export class Chat extends JobHandle<ChatBody, ChatResult> {
  /** @internal Use `client.llm.chat`, or `client.llm.job`. */
  constructor(tools: Tools, id: string, urls: JobUrls, answer: Answer | null) {
    super(tools.exchange, id, urls, answer);
  }

  /** @internal */
  static from(tools: Tools, answer: Answer): Chat {
    const ticket = answer.object<ChatTicket>();
    if (typeof ticket.job_id !== "string") throw new UnexpectedAnswerError("the answer is not a job");
    const chat = new Chat(tools, ticket.job_id, urlsBelow(tools.addresses.named(ticket.urls.poll)), answer);
    chat.learnTicket(ticket);
    return chat;
  }

  /** Stream the model's answer. Throws JobFailedError if the chat fails. */
  async *parts(options: StreamOptions = {}): AsyncGenerator<ChatPart, void, void> {
    for await (const event of this.stream(options)) {
      if (event.name === "chunk") yield part(event.data as Record<string, unknown>, event.id);
      if (event.name === "end" && event.data.state !== "done") throw failure(event.data);
    }
  }

  protected override stateOf(body: ChatBody): string {
    return body.state;
  }

  protected override isWhole(body: ChatBody): boolean {
    return body.state !== "done" || (body.result !== null && body.result !== undefined);
  }

  protected override outcome(body: ChatBody): ChatResult {
    if (body.state === "done") return body.result as ChatResult;
    throw failure(body);
  }
}

function part(raw: Record<string, unknown>, id: string | null): ChatPart {
  const message = raw["message"] as { content?: unknown } | undefined;
  const text = message?.content ?? raw["response"];
  const own = raw["coatcheck"] as { restarted?: unknown } | undefined;
  return { text: typeof text === "string" ? text : "", restarted: own?.restarted === true, raw, id };
}

function failure(body: ChatBody): JobFailedError<ChatBody> {
  const error = body.error ?? { code: "job_failed", message: "The server does not say why." };
  return new JobFailedError(body.job_id, body.state, error.code, error.message, body);
}
