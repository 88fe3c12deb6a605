/* Parses server-sent events: text in, the data of complete events out. Pure, apart from its buffer. */

/** Maximum length of one event; this server sends no longer ones. */
const EVENT_MAX = 4 * 1024 * 1024;

export class EventReader {
  #rest = "";

  /** The data of every event that is whole with this piece. Throws if an event grows without end. */
  add(piece: string): string[] {
    const found: string[] = [];
    this.#rest += piece;
    for (;;) {
      const end = /\r?\n\r?\n/.exec(this.#rest);
      if (!end) break;
      const data = dataOf(this.#rest.slice(0, end.index));
      this.#rest = this.#rest.slice(end.index + end[0].length);
      if (data !== null) found.push(data);
    }
    if (this.#rest.length > EVENT_MAX) throw new Error("an event without an end");
    return found;
  }
}

function dataOf(event: string): string | null {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(line.startsWith("data: ") ? 6 : 5)).join("\n") : null;
}
