import { Logger, run } from "graphile-worker";

import { jobStarted } from "./recorder.mjs";
import { settings } from "./settings.mjs";

const quiet = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

const runner = await run({
  preset: {
    worker: { connectionString: process.env.BENCH_ADDRESS, logger: quiet, ...settings.worker },
  },
  taskList: {
    noop: async (payload) => {
      jobStarted(payload.n);
    },
  },
});
await runner.promise;
