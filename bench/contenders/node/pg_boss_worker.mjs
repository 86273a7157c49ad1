import { PgBoss } from "pg-boss";

import { jobStarted } from "./recorder.mjs";
import { settings } from "./settings.mjs";

const boss = new PgBoss({
  connectionString: process.env.BENCH_ADDRESS,
  max: settings.workerConnections,
  useListenNotify: true,
});
boss.on("error", (error) => console.error(error));
boss.on("warning", (warning) => console.error(warning));
await boss.start();
await boss.work("noop", settings.work, async (jobs) =>
  jobs.map((job) => {
    jobStarted(job.data.n);
    return { id: job.id, status: "completed", output: { n: job.data.n } };
  }),
);
process.on("SIGTERM", async () => {
  await boss.stop({ graceful: false });
  process.exit(0);
});
