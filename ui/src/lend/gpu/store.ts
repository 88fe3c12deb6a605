/* Weights of models that this browser keeps: pieces by the SHA-256 of their bytes, a file each, in the browser's own file
 * system (OPFS). What is read back is verified by that hash before it is used.
 *
 * One store belongs to the worker that is the node, which does one thing after the other with it. A page may look at the
 * files and delete them. Anybody may at any time: the browser itself, and the person in its settings. So whatever fails
 * here only means that a piece is not kept, and is fetched again. */

const FOLDER = "exogpu-weights";
const HASH = /^[0-9a-f]{64}$/;

export interface StoreTold {
  bytes: number;
  /** The browser gave no more room when the last piece was to be kept. */
  full: boolean;
}

interface Kept {
  bytes: number;
  /** The load that it was used by last. 0: none since the page was opened. */
  load: number;
}

export async function sha256(body: BufferSource): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether this browser has the interfaces. A private window may have them and refuse all the same. */
export const canKeep = (): boolean => typeof navigator.storage?.getDirectory === "function";

export class WeightStore {
  private limit = 0;
  private full = false;
  private load = 0;
  private folder: FileSystemDirectoryHandle | null = null;
  private kept: Map<string, Kept> | null = null; // least recently used first; null: not known
  private bytes = 0;
  private tail: Promise<unknown> = Promise.resolve();
  private readonly changed: () => void;

  constructor(changed: () => void = () => {}) {
    this.changed = changed;
  }

  told(): StoreTold {
    return { bytes: this.bytes, full: this.full };
  }

  /** A load begins: what it uses is not deleted for what it fetches. Whether anything is kept. */
  begin(): Promise<boolean> {
    return this.after(async () => {
      this.load++;
      this.full = false;
      return this.limit > 0 && (await this.list()).size > 0;
    }, false);
  }

  /** null: it is not kept. */
  find(hash: string, bytes: number): Promise<ArrayBuffer | null> {
    return this.after(async () => {
      const one = (await this.list()).get(hash);
      if (!this.folder || !one) return null;
      const body = await (await (await this.folder.getFileHandle(hash)).getFile()).arrayBuffer();
      if (body.byteLength !== bytes || (await sha256(body)) !== hash) {
        await this.remove(hash);
        return null;
      }
      this.kept?.delete(hash);
      this.kept?.set(hash, { bytes, load: this.load }); // now the most recently used
      return body;
    }, null);
  }

  /** Bytes whose hash was verified. Whether they are kept. */
  keep(hash: string, body: Uint8Array<ArrayBuffer>): Promise<boolean> {
    return this.after(async () => {
      if (!HASH.test(hash) || body.length > this.limit || this.full) return false;
      const all = await this.list();
      if (all.has(hash)) return true;
      if (!this.folder || !(await this.room(body.length))) return false;
      all.set(hash, { bytes: body.length, load: this.load });
      this.bytes += body.length;
      try {
        await write(await this.folder.getFileHandle(hash, { create: true }), body);
      } catch (error) {
        await this.remove(hash);
        if (!(error instanceof DOMException) || error.name !== "QuotaExceededError") throw error;
        this.full = true;
        return false;
      }
      return true;
    }, false);
  }

  /** What is beyond it is deleted, the least recently used first. 0: nothing is kept. */
  setLimit(bytes: number): Promise<void> {
    return this.after(async () => {
      this.limit = bytes;
      this.full = false;
      if (!this.folder) this.forget(); // it is made once something is to be kept
      for (const [hash] of await this.list()) {
        if (this.bytes <= bytes) break;
        await this.remove(hash);
      }
    }, undefined);
  }

  clear(): Promise<void> {
    return this.after(async () => {
      this.forget();
      this.full = false;
      this.bytes = 0;
      await (await navigator.storage.getDirectory()).removeEntry(FOLDER, { recursive: true });
    }, undefined);
  }

  /** Of the files as they are now. */
  measure(): Promise<StoreTold> {
    return this.after(async () => {
      this.forget();
      await this.list();
    }, undefined).then(() => this.told());
  }

  // ---- one thing after the other ----

  private after<T>(action: () => Promise<T>, otherwise: T): Promise<T> {
    const done = this.tail.then(action).catch((): T => {
      this.forget(); // somebody else deleted it, or the browser refuses: look anew
      return otherwise;
    });
    this.tail = done.then(() => this.changed());
    return done;
  }

  private forget(): void {
    this.folder = null;
    this.kept = null;
  }

  private async list(): Promise<Map<string, Kept>> {
    if (this.kept) return this.kept;
    this.bytes = 0;
    const found: (Kept & { hash: string; at: number })[] = [];
    this.folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: this.limit > 0 }).catch(() => null);
    for await (const entry of this.folder?.values() ?? [])
      if (entry.kind === "file") {
        const { size, lastModified } = await entry.getFile();
        found.push({ hash: entry.name, bytes: size, load: 0, at: lastModified });
      }
    found.sort((a, b) => a.at - b.at);
    this.bytes = found.reduce((sum, one) => sum + one.bytes, 0);
    this.kept = new Map(found.map(({ hash, bytes, load }) => [hash, { bytes, load }]));
    return this.kept;
  }

  private async remove(hash: string): Promise<void> {
    this.bytes -= this.kept?.get(hash)?.bytes ?? 0;
    this.kept?.delete(hash);
    await this.folder?.removeEntry(hash);
  }

  /** Deletes what the load under way does not use. */
  private async room(bytes: number): Promise<boolean> {
    for (const [hash, one] of this.kept ?? []) {
      if (this.bytes + bytes <= this.limit) break;
      if (one.load < this.load) await this.remove(hash);
    }
    return this.bytes + bytes <= this.limit;
  }
}

/** Only workers have it. */
interface SyncAccess {
  truncate(bytes: number): void;
  write(body: Uint8Array, options: { at: number }): number;
  close(): void;
}

async function write(file: FileSystemFileHandle, body: Uint8Array<ArrayBuffer>): Promise<void> {
  const access = await (file as FileSystemFileHandle & { createSyncAccessHandle(): Promise<SyncAccess> }).createSyncAccessHandle();
  try {
    access.truncate(0);
    if (access.write(body, { at: 0 }) !== body.length) throw new DOMException("it was written in part", "QuotaExceededError");
  } finally {
    access.close();
  }
}
