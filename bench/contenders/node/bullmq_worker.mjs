import { Worker } from "bullmq";
import { Redis } from "ioredis";

import { jobStarted } from "./recorder.mjs";
import { connectionOptions } from "./redis_address.mjs";
import { settings } from "./settings.mjs";

const worker = new Worker(
  "noop",
  async (job) => {
    jobStarted(job.data.n);
    return { n: job.data.n };
  },
  {
    connection: new Redis(connectionOptions(process.env.BENCH_ADDRESS)),
    concurrency: settings.workerConcurrency,
  },
);
worker.on("error", (error) => console.error(error));
process.on("SIGTERM", async () => {
  await worker.close(true);
  process.exit(0);
});
