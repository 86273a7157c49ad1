// How a worker process reports its jobs to the benchmark; see bench/recorder.py.
// Node cannot map a file, so the counter is written when it changed, every few milliseconds.

import { openSync, writeSync } from "node:fs";

const SLOT_BYTES = 8;
const WRITE_EVERY_MS = 2;

const progress = openSync(process.env.BENCH_PROGRESS, "r+");
const offset = Number(process.env.BENCH_SLOT) * SLOT_BYTES;
const starts = process.env.BENCH_STARTS ? openSync(process.env.BENCH_STARTS, "a") : null;

let count = 0;
let written = 0;

function writeCount() {
  if (count === written) return;
  const bytes = Buffer.alloc(SLOT_BYTES);
  bytes.writeBigUInt64LE(BigInt(count));
  writeSync(progress, bytes, 0, SLOT_BYTES, offset);
  written = count;
}

setInterval(writeCount, WRITE_EVERY_MS).unref();

export function jobStarted(number) {
  if (starts !== null) {
    const now = process.hrtime.bigint();
    writeSync(starts, `${number} ${now}\n`);
  }
  count++;
}
