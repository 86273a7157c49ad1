// The payload every contender carries; the same 100 bytes as bench/payload.py makes.

const PAYLOAD_BYTES = 100;
const FRAME_BYTES = JSON.stringify({ n: 0, pad: "" }).length - 1;

export function payloadObject(number) {
  const digits = String(number).length;
  return { n: number, pad: "x".repeat(PAYLOAD_BYTES - FRAME_BYTES - digits) };
}
