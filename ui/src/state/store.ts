/* The one store: a signal that views read, and a dispatch that only the socket file is given.
 *
 * Actions are applied at once; the signal changes once per animation frame at most, so that a burst of events is one
 * redraw, and with the tab hidden (when there are no frames) none. */
import { type ReadonlySignal, signal } from "@preact/signals";
import { type Action, reduce } from "./reduce";
import { type State, initialState } from "./state";

export interface Store {
  /** The state that views draw. */
  readonly state: ReadonlySignal<State>;
  /** The newest state, ahead of `state` by up to a frame. */
  current(): State;
  dispatch(action: Action): void;
  /** Draws the newest state at once, for the first time. */
  publish(): void;
}

export function createStore(frame: (draw: () => void) => void): Store {
  let current = initialState;
  let waiting = false;
  const state = signal(current);
  return {
    state,
    publish: () => ((state.value = current), undefined),
    current: () => current,
    dispatch(action) {
      current = reduce(current, action);
      if (waiting) return;
      waiting = true;
      frame(() => {
        waiting = false;
        state.value = current;
      });
    },
  };
}
