/** Chats with language models, queued. */

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

/** What Ollama's `/api/chat` takes; with `prompt` instead of `messages`, what its `/api/generate` takes. */
export interface ChatRequest {
  readonly model: string;
  readonly messages?: readonly ChatMessage[];
  readonly prompt?: string;
  readonly [field: string]: unknown;
}

/** What the target would have answered to a request that does not stream. */
export interface ChatResult {
  readonly message?: ChatMessage;
  readonly response?: string;
  readonly [field: string]: unknown;
}

export interface ChatOptions extends CallOptions {
  readonly idempotencyKey?: string | undefined;
  /** Who is told of the job's end. */
  readonly webhookUrl?: string | undefined;
  /** Who is told of every state. */
  readonly stateWebhookUrl?: string | undefined;
}

/**
 * A piece of an answer. `restarted`: the job begins again, and everything before this piece is void.
 * `id` is what to give to `parts({ after: id })` in order to go on behind it.
 */
export interface ChatPart {
  readonly text: string;
  readonly restarted: boolean;
  readonly raw: Readonly<Record<string, unknown>>;
  readonly id: string | null;
}

export class Llm {
  constructor(private readonly tools: Tools) {}

  /** Hand a chat in. When this resolves, it is durable; `wait` gets the answer, `parts` as it is said. */
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

  /** The handle of a chat whose id is known. Nothing is asked yet. */
  job(id: string): Chat {
    return new Chat(this.tools, id, urlsBelow(this.tools.addresses.chat(id)), null);
  }
}

/** A chat. `wait` resolves to what the model answered. */
export class Chat extends JobHandle<ChatBody, ChatResult> {
  /** @internal Use `client.llm.chat`, or `client.llm.job`. */
  constructor(tools: Tools, id: string, urls: JobUrls, answer: Answer | null) {
    super(tools.exchange, id, urls, answer);
  }

  /** @internal */
  static from(tools: Tools, answer: Answer): Chat {
    const ticket = answer.object<ChatTicket>();
    if (typeof ticket.job_id !== "string") throw new UnexpectedAnswerError("the answer does not show a job");
    const chat = new Chat(tools, ticket.job_id, urlsBelow(tools.addresses.named(ticket.urls.poll)), answer);
    chat.learnTicket(ticket);
    return chat;
  }

  /** What the model says as it says it. Throws JobFailedError if the chat fails. */
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
