/** A parser for `text/event-stream`, as the HTML standard defines it. */

/** One event as sent. `id` is null if the event has none. */
export interface SentEvent {
  readonly name: string;
  readonly data: string;
  readonly id: string | null;
  readonly retryMs: number | null;
}

/** Parses text chunks with arbitrary boundaries. An event counts only once an empty line follows it. */
export class EventParser {
  readonly #decoder = new TextDecoder();
  #pieces: string[] = [];
  #endsWithReturn = false;
  #name = "";
  #data: string[] = [];
  #id: string | null = null;
  #retryMs: number | null = null;

  *read(piece: Uint8Array): Generator<SentEvent, void, void> {
    let text = this.#decoder.decode(piece, { stream: true });
    if (text === "") return;
    if (this.#endsWithReturn && text.startsWith("\n")) text = text.slice(1);
    this.#endsWithReturn = text.endsWith("\r");
    const lines = text.split(/\r\n|\n|\r/);
    for (const [index, line] of lines.entries()) {
      this.#pieces.push(line);
      if (index === lines.length - 1) break;
      const whole = this.#pieces.join("");
      this.#pieces = [];
      const event = this.#line(whole);
      if (event !== null) yield event;
    }
  }

  #line(line: string): SentEvent | null {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    switch (field) {
      case "event":
        this.#name = value;
        break;
      case "data":
        this.#data.push(value);
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "retry":
        if (/^[0-9]+$/.test(value)) this.#retryMs = Number(value);
        break;
    }
    return null;
  }

  #dispatch(): SentEvent | null {
    const event: SentEvent = {
      name: this.#name === "" ? "message" : this.#name,
      data: this.#data.join("\n"),
      id: this.#id,
      retryMs: this.#retryMs,
    };
    const isEmpty = this.#data.length === 0 && event.id === null && event.retryMs === null;
    this.#name = "";
    this.#data = [];
    this.#id = null;
    this.#retryMs = null;
    return isEmpty ? null : event;
  }
}
