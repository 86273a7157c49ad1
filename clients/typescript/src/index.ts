/** A client of Coatcheck's HTTP API. */

export { Batch, type BatchProgress, type BatchWaitOptions } from "./batch.js";
export type { BatchOptions } from "./batchOptions.js";
export type {
  Batches,
  CreateBatchOptions,
  CreateExportOptions,
  RerunOptions,
  TaskSource,
} from "./batches.js";
export type * from "./bodies.js";
export {
  Coatcheck,
  type CallEndpointOptions,
  type CoatcheckOptions,
  type Downloadable,
  type SubmitOptions,
} from "./client.js";
export {
  ApiError,
  AuthenticationError,
  BatchFailedError,
  CoatcheckError,
  ConflictError,
  ConnectionFailedError,
  ExportFailedError,
  InvalidRequestError,
  InvalidWebhookError,
  JobFailedError,
  NotFoundError,
  PaymentRequiredError,
  PermissionDeniedError,
  PollingTimeoutError,
  RateLimitedError,
  ServerError,
  UnexpectedAnswerError,
  WaitTimeoutError,
  type ErrorDetail,
} from "./errors.js";
export type { Alert, ChangeEvent, JobEvent, LogLine, StreamOptions } from "./events.js";
export type { Credential, Fetch } from "./exchange.js";
export type { GraphFile, GraphOptions, GraphProgress } from "./graphs.js";
export { Job } from "./job.js";
export type { CallOptions, JobUrls, JobWaitOptions } from "./jobHandle.js";
export type { BulkFilter, BulkSelection, Jobs, ListJobsOptions } from "./jobs.js";
export {
  Chat,
  type ChatMessage,
  type ChatOptions,
  type ChatPart,
  type ChatRequest,
  type ChatResult,
  type Llm,
} from "./llm.js";
export {
  SpeechTask,
  type CloneResult,
  type CloneVoice,
  type GenerateSpeech,
  type GenerateSpeechOptions,
  type PreviewVoiceDesign,
  type Speech,
  type SpeechResult,
} from "./speech.js";
export type { Uploads } from "./uploads.js";
export type { WaitOptions } from "./waiting.js";
export {
  verifyWebhook,
  type GivenHeaders,
  type VerifyOptions,
  type WebhookEvent,
  type Webhooks,
} from "./webhooks.js";
