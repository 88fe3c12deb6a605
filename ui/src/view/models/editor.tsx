/* The layers as one strip, from the first to the last, with a handle where one device's end and the next one's begin.
 * Moving a handle pins every stage to where it then is. */
import { useRef } from "preact/hooks";
import type { Pin } from "../../lib/api.gen";
import { count } from "../../lib/format";
import { deviceLabel } from "../../state/select";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { Named } from "../parts";

/** As sliders have them: by one layer, by eight, and as far as it goes. */
const steps: Record<string, number> = {
  ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -8, PageUp: 8, Home: -Infinity, End: Infinity,
};

/** Pins with the boundary before pin `at` moved to `layer`; each keeps one layer at least. */
export function moveBoundary(pins: readonly Pin[], at: number, layer: number): Pin[] {
  const before = pins[at - 1]!;
  const after = pins[at]!;
  const end = after.first_layer + after.layer_count;
  const to = Math.min(end - 1, Math.max(before.first_layer + 1, Math.round(layer)));
  return pins.map((pin, i) =>
    i === at - 1
      ? { ...pin, layer_count: to - pin.first_layer }
      : i === at
        ? { ...pin, first_layer: to, layer_count: end - to }
        : { ...pin },
  );
}

export function LayerEditor({
  pins,
  chosen,
  layers,
  change,
}: {
  /** The current stages in order; together they have all layers. */
  pins: readonly Pin[];
  /** The placement without moved layers; null while that is shown. */
  chosen: readonly Pin[] | null;
  layers: number;
  change: (pins: Pin[]) => void;
}) {
  const { state } = useApp();
  const strip = useRef<HTMLDivElement>(null);
  const name = (id: string): string => deviceLabel(state.value, id);
  const share = (layer: number): number => (layer / layers) * 100;
  const drag = (at: number) => (event: PointerEvent) => {
    const handle = event.currentTarget as HTMLElement;
    const box = strip.current!.getBoundingClientRect();
    handle.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent): void =>
      change(moveBoundary(pins, at, ((moved.clientX - box.left) / box.width) * layers));
    const over = (): void => {
      handle.removeEventListener("pointermove", move);
      handle.removeEventListener("pointerup", over);
      handle.removeEventListener("pointercancel", over);
    };
    handle.addEventListener("pointermove", move);
    handle.addEventListener("pointerup", over);
    handle.addEventListener("pointercancel", over);
  };
  const key = (at: number) => (event: KeyboardEvent) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    change(moveBoundary(pins, at, pins[at]!.first_layer + step));
  };
  return (
    <section class="layer-editor">
      <div class="sub">
        <h3>{t`Layers`}</h3>
        {pins.length > 1 && (
          <p class="small faint">
            {tx`drag a handle, or ${<kbd>←</kbd>} ${<kbd>→</kbd>} for one layer`}
          </p>
        )}
      </div>
      <div class="strip" ref={strip} style={{ "--layers": layers }}>
        {pins.map((pin, i) => (
          <span
            key={pin.device_id}
            class="strip-part"
            style={{ "--from": share(pin.first_layer), "--to": share(pin.first_layer + pin.layer_count) }}
            title={`${name(pin.device_id)}, ${count(pin.layer_count, "layer")}`}
          >
            <span class="strip-name">
              <span>{i + 1}</span>
              <b class="clip">
                <Named text={name(pin.device_id)} />
              </b>
              <span class="clip">{count(pin.layer_count, "layer")}</span>
            </span>
          </span>
        ))}
        {chosen?.slice(1).map((pin) => (
          <i class="strip-was" key={pin.device_id} style={{ "--at": share(pin.first_layer) }} />
        ))}
        {pins.slice(1).map((pin, i) => (
          <button
            key={pin.device_id}
            class="strip-handle"
            type="button"
            role="slider"
            aria-label={t`Layers of ${name(pins[i]!.device_id)} end, of ${name(pin.device_id)} begin`}
            aria-valuemin={pins[i]!.first_layer + 1}
            aria-valuemax={pin.first_layer + pin.layer_count - 1}
            aria-valuenow={pin.first_layer}
            aria-valuetext={`${count(pins[i]!.layer_count, "layer")}, then ${count(pin.layer_count, "layer")}`}
            style={{ "--at": share(pin.first_layer) }}
            onPointerDown={drag(i + 1)}
            onKeyDown={key(i + 1)}
          />
        ))}
      </div>
    </section>
  );
}
