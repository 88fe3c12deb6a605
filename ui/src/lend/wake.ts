/* Keeps the screen on, if its owner wants that, while the page is in front and lends. */
import { signal } from "@preact/signals";

export class WakeLock {
  readonly possible = "wakeLock" in navigator;
  readonly wanted = signal(false);
  private held: WakeLockSentinel | null = null;

  ask(wanted: boolean): void {
    this.wanted.value = wanted;
    this.follow(!document.hidden);
  }

  /** The system takes it away from a hidden page, and it is asked for again. */
  follow(visible: boolean): void {
    if (!this.possible) return;
    if (this.wanted.value && visible && !this.held)
      navigator.wakeLock.request("screen").then(
        (held) => {
          this.held = held;
          held.addEventListener("release", () => (this.held = null));
          if (!this.wanted.value) void held.release();
        },
        () => (this.wanted.value = false), // refused, for example with a battery that is nearly empty
      );
    if (!this.wanted.value && this.held) void this.held.release();
  }
}
