/* The preview of a placement, before anything is loaded: wishes, memory, time, reasons. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type PlaceParams, isRefused, loadModel, previewPlacement } from "../../command/models";
import type { Refusal } from "../../command/tried";
import type { ChatTemplate, Model, Pin, Placement } from "../../lib/api.gen";
import { count, figure, memory, sentence } from "../../lib/format";
import { deviceHref } from "../../lib/route";
import { inTurn, instancesOf, mayManage, proofWord, sliceWord } from "../../state/models";
import { deviceLabel, deviceName, isLive, obstacle, sortedDevices } from "../../state/select";
import type { State } from "../../state/state";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Figure, MarkIcon, RefusalNote } from "../parts";
import { PredictedFall } from "./breakdown";
import { DraftKnob, DraftNote } from "./draft";
import { LayerEditor } from "./editor";
import { MemoryLegend, NOT_FREE, StageMemory } from "./memory";
import { TemplateKnob } from "./template";

const SETTLE_MS = 150;
const FIRST_S = 0.1;
const NOTICED_BYTES = 256 * 1024 * 1024;

/** Changes when a device does, its bandwidth is measured, or memory in use changes by as much as a placement notices. */
const deviceFacts = (state: State): string =>
  Object.values(state.devices)
    .map(({ record, reading }) =>
      [record.state, record.memory_bandwidth_bytes_per_s, Math.round((reading?.memory_used_bytes ?? 0) / NOTICED_BYTES)].join(" "),
    )
    .join(",");

/** What a placement would be: asked again when a wish, the instances or facts of the devices change. The first answer is
 * shown at once, while a better one is searched for; a newer question of this connection ends that search. */
function usePreview(params: PlaceParams): { placement: Placement | null; refusal: Refusal | null; searching: boolean } {
  const { state, server } = useApp();
  const [placement, setPlacement] = useState<Placement | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [searching, setSearching] = useState(false);
  const live = isLive(state.value);
  const key = JSON.stringify(params);
  const instances = Object.values(state.value.instances)
    .map((one) => `${one.instance_id} ${one.state}`)
    .join(",");
  useEffect(() => {
    if (!live) return;
    let current = true;
    const ask = async (asked: PlaceParams): Promise<boolean> => {
      const outcome = await previewPlacement(server, asked);
      if (!current) return false;
      const refused = isRefused(outcome);
      setRefusal(refused ? outcome : null);
      setPlacement(refused ? null : outcome);
      return !refused && outcome.proof === "bound";
    };
    const read = async (): Promise<void> => {
      setSearching(await ask({ ...params, timeout_s: FIRST_S }));
      if (!current) return;
      await ask(params);
      if (current) setSearching(false);
    };
    const timer = setTimeout(() => void read(), SETTLE_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [key, live, instances, deviceFacts(state.value)]);
  return { placement, refusal, searching };
}

const contexts = [2048, 4096, 8192, 16384, 32768, 65536, 131072];

export function Preview({ model }: { model: Model }) {
  const { state, server } = useApp();
  const of = model.architecture!;
  const [context, setContext] = useState(0); // 0: what memory has room for
  const [sequences, setSequences] = useState(0);
  const [format, setFormat] = useState<"" | "Q8_0" | "Q4_0">("");
  const [least, setLeast] = useState<"" | "Q8_0" | "Q4_0">("");
  const [device, setDevice] = useState("");
  const [objective, setObjective] = useState<"latency" | "throughput">("latency");
  const [strategy, setStrategy] = useState<"" | "pipeline" | "tensor">("");
  const [draft, setDraft] = useState("");
  const [template, setTemplate] = useState<ChatTemplate | "">("");
  const [moved, setMoved] = useState<Pin[] | null>(null);
  const [loading, setLoading] = useState(false);
  const [failed, setFailed] = useState<Refusal | null>(null);
  const params: PlaceParams = {
    model_id: model.model_id,
    ...(context ? { context_tokens: context } : {}),
    ...(sequences ? { sequences } : {}),
    ...(format ? { format } : {}),
    objective,
    ...(draft ? { draft_model_id: draft } : {}),
    ...(strategy ? { strategy } : {}),
    ...(device
      ? { pins: [{ device_id: device, first_layer: 0, layer_count: of.layers }] }
      : moved
        ? { pins: moved }
        : {}),
  };
  const freely = useRef<Pin[] | null>(null); // where it would go by itself
  const { placement, refusal, searching } = usePreview(params);
  const shown: Pin[] =
    placement?.stages.map(({ device_id, first_layer, layer_count }) => ({ device_id, first_layer, layer_count })) ?? [];
  const sliced = placement !== null && inTurn(placement.stages).length < placement.stages.length;
  if (placement && !device && !moved) freely.current = shown;
  const admin = mayManage(state.value.login);
  const why =
    obstacle(state.value) ?? (!admin ? t`Loading a model needs the scope admin.` : placement && !placement.feasible ? t`It does not fit.` : null);
  const load = async (): Promise<void> => {
    setLoading(true);
    setFailed(
      await loadModel(server, { ...params, ...(template ? { chat_template: template } : {}), ...(least ? { least_format: least } : {}) }),
    );
    setLoading(false);
  };
  const another = instancesOf(state.value, model.model_id).some((one) => one.state !== "failed");
  const linked = sortedDevices(state.value).some(({ record }) => record.peers.length > 0);
  const wide = of.format === "F32" || of.format === "F16" || of.format === "BF16";
  const choices = [...new Set([...contexts.filter((n) => n < of.context_tokens), of.context_tokens])].sort((a, b) => a - b);
  return (
    <section class="panel preview" aria-label={t`Placement preview`}>
      <div class="pv-head">
        <div>
          <h2>{another ? t`Placement of another instance` : t`Placement`}</h2>
          <p class="quiet">{another ? t`Nothing is loaded until you press Load another.` : t`Nothing is loaded until you press Load.`}</p>
        </div>
        <button
          class={`btn ${another ? "" : "primary"}`}
          type="button"
          disabled={why !== null || loading || !placement}
          title={why ?? undefined}
          onClick={() => void load()}
        >
          {loading ? t`Loading` : another ? t`Load another` : t`Load`}
        </button>
        {placement && <Prediction placement={placement} together={objective === "throughput"} searching={searching} />}
      </div>
      <div class="knobs">
        <label class="knob">
          <span class="label">{t`Device`}</span>
          <select value={device} onChange={(event) => {
              setDevice(event.currentTarget.value);
              setMoved(null);
            }}
          >
            <option value="">{t`automatic`}</option>
            {sortedDevices(state.value)
              .filter(({ record }) => record.support !== "unsupported" && record.state !== "offline")
              .map(({ record }) => (
                <option key={record.device_id} value={record.device_id}>
                  {deviceName(state.value, record.device_id)}
                  {Object.keys(state.value.nodes).length > 1 && t` on ${state.value.nodes[record.node_id]?.record.name ?? record.node_id}`}
                </option>
              ))}
          </select>
        </label>
        <label class="knob">
          <span class="label">{t`Context`}</span>
          <select value={context} onChange={(event) => setContext(Number(event.currentTarget.value))}>
            <option value={0}>{placement && !context ? t`By memory: ${figure(placement.context_tokens)} tokens` : t`By memory`}</option>
            {choices.map((n) => (
              <option key={n} value={n}>
                {t`${figure(n)} tokens`}
              </option>
            ))}
          </select>
        </label>
        <label class="knob">
          <span class="label">{t`Parallel requests`}</span>
          <select value={sequences} onChange={(event) => setSequences(Number(event.currentTarget.value))}>
            <option value={0}>{placement && !sequences ? t`By memory: ${count(placement.sequences, "request")}` : t`By memory`}</option>
            {[1, 2, 4, 8, 16, 32, 64].map((n) => (
              <option key={n} value={n}>
                {count(n, "request")}
              </option>
            ))}
          </select>
        </label>
        <label class="knob">
          <span class="label">{t`Optimise for`}</span>
          <select
            value={objective}
            onChange={(event) => {
              setObjective(event.currentTarget.value as typeof objective);
              setMoved(null);
            }}
          >
            <option value="latency">{t`one request (latency)`}</option>
            <option value="throughput">{t`many requests (throughput)`}</option>
          </select>
        </label>
        {linked && (
          <label class="knob">
            <span class="label">{t`Split over GPUs`}</span>
            <select
              value={strategy}
              onChange={(event) => {
                setStrategy(event.currentTarget.value as typeof strategy);
                setMoved(null);
              }}
            >
              <option value="">{t`automatic`}</option>
              <option value="pipeline">{t`by layers (pipeline)`}</option>
              <option value="tensor">{t`within layers (tensor)`}</option>
            </select>
          </label>
        )}
        {wide && (
          <label class="knob">
            <span class="label">{t`Weight format`}</span>
            <select value={format} onChange={(event) => setFormat(event.currentTarget.value as typeof format)}>
              <option value="">{t`${of.format}, as in the file`}</option>
              <option value="Q8_0">{t`Q8_0, 8 bits`}</option>
              <option value="Q4_0">{t`Q4_0, 4 bits`}</option>
            </select>
          </label>
        )}
        {wide && (
          <label class="knob">
            <span class="label">{t`If it gets too hot`}</span>
            <select value={least} onChange={(event) => setLeast(event.currentTarget.value as typeof least)}>
              <option value="">{t`the format stays`}</option>
              <option value="Q8_0">{t`down to Q8_0, 8 bits`}</option>
              <option value="Q4_0">{t`down to Q4_0, 4 bits`}</option>
            </select>
          </label>
        )}
        {of.task === "text" && <DraftKnob model={model} value={draft} change={setDraft} />}
        {of.task === "text" && <TemplateKnob of={of} value={template} change={setTemplate} />}
      </div>
      {(refusal ?? failed) && (
        <div class="panel-body">
          <RefusalNote refusal={refusal ?? failed} />
        </div>
      )}
      {(moved ?? shown).length > 1 && !sliced && (
        <div class="panel-body layer-room">
          <LayerEditor pins={moved ?? shown} chosen={moved ? freely.current : null} layers={of.layers} change={setMoved} />
          <button class={`btn small-btn ${moved ? "" : "unseen"}`} type="button" onClick={() => setMoved(null)}>
            {t`Reset to automatic`}
          </button>
        </div>
      )}
      {draft && placement && placement.feasible && <DraftNote draft={draft} placement={placement} />}
      {placement ? <Where placement={placement} layers={of.layers} /> : !refusal && <p class="panel-body quiet skeleton">{t`Searching for the best placement.`}</p>}
    </section>
  );
}

const rate = (tokens_per_s: number): string => figure(tokens_per_s, tokens_per_s < 100 ? 1 : 0);

/** The figure that was aimed for is the large one: of one request, or of all together. */
function Prediction({ placement, together, searching }: { placement: Placement; together: boolean; searching: boolean }) {
  if (!placement.feasible)
    return (
      <p class="answer crit">
        <MarkIcon mark="offline" class="mini" /> {placement.proof === "not_found" ? t`No placement was found in the time allowed.` : t`It does not fit with these settings.`}
      </p>
    );
  const { predicted } = placement;
  const prompts = predicted && predicted.prompt_tokens_per_s !== null ? t`, prompts at ${rate(predicted.prompt_tokens_per_s)} tokens per s` : "";
  return (
    <p class="answer">
      {predicted && together ? (
        <>
          <span class="big">
            {rate(predicted.together_tokens_per_s)}
            <span class="unit">{" "}{t`tokens per s`}</span>
          </span>
          <span class="quiet">
            {t`for ${count(placement.sequences, "request")} together, ${rate(predicted.tokens_per_s)} for one alone${prompts}, predicted`}
          </span>
        </>
      ) : predicted ? (
        <>
          <span class="big">
            {figure(predicted.seconds_per_token * 1000, predicted.seconds_per_token < 0.01 ? 2 : 1)}
            <span class="unit">{" "}{t`ms per token`}</span>
          </span>
          <span class="quiet">
            {t`${rate(predicted.tokens_per_s)} tokens per s for one request, ${rate(predicted.together_tokens_per_s)} for ${figure(placement.sequences)} together${prompts}, predicted`}
          </span>
        </>
      ) : (
        <span class="quiet">{t`Its speed cannot be predicted: the device's memory bandwidth has not been measured.`}</span>
      )}
      <span class="badge">
        <MarkIcon mark="ok" />
        {searching ? t`first result; still searching` : proofWord(placement)}
      </span>
    </p>
  );
}

function Where({ placement, layers }: { placement: Placement; layers: number }) {
  const { state } = useApp();
  const memoryOf = new Map(placement.devices.map((one) => [one.device_id, one]));
  const axis = Math.max(1, ...placement.stages.map((one) => memoryOf.get(one.device_id)?.memory_bytes ?? 0));
  const lacks = (id: string): number => {
    const one = placement.feasible ? undefined : memoryOf.get(id);
    return one ? Math.max(0, one.needed_bytes - (one.free_bytes === null ? one.memory_bytes : one.free_bytes + one.given_bytes)) : 0;
  };
  const named = byText(state.value, placement.why);
  return (
    <div class="pv-grid">
      <div class="pv-main">
        {placement.stages.length > 0 && (
          <section>
            <div class="sub">
              <h3>{t`Memory`}</h3>
              <MemoryLegend />
            </div>
            <ul class="stages">
              {placement.stages.map((stage) => (
                <StageMemory
                  key={`${stage.device_id} ${stage.first_layer}`}
                  stage={stage}
                  layers={layers}
                  total={memoryOf.get(stage.device_id)?.memory_bytes ?? 0}
                  free={memoryOf.get(stage.device_id)?.free_bytes ?? null}
                  notFree={NOT_FREE}
                  given={memoryOf.get(stage.device_id)?.given_bytes ?? 0}
                  lacks={lacks(stage.device_id)}
                  axis={axis}
                  slice={sliceWord(placement.stages, stage)}
                />
              ))}
            </ul>
          </section>
        )}
        <PredictedFall placement={placement} />
        {placement.stages.length === 0 && (
          <section>
            <h3>{t`Available memory`}</h3>
            <ul class="lacks">
              {placement.devices.map((one) => (
                <li key={one.device_id} class="small">
                  <b>{deviceLabel(state.value, one.device_id)}</b>{" "}{t`has`}{" "}
                  {one.free_bytes !== null && (
                    <>
                      <Figure {...memory(one.free_bytes)} />{" "}{t`free of`}{" "}
                    </>
                  )}
                  <Figure {...memory(one.memory_bytes)} />
                </li>
              ))}
            </ul>
          </section>
        )}
      </div>
      <div class="pv-why">
        <h3>{t`Why this placement`}</h3>
        {placement.why
          .filter((one) => one.device_id === null)
          .map((one) => (
            <p key={one.text}>{sentence(one.text)}</p>
          ))}
        {named.length > 0 && (
          <ul class="left-out">
            {named.map((one) => (
              <li key={one.text}>
                <MarkIcon mark="idle" />
                <About {...one} />
              </li>
            ))}
          </ul>
        )}
        {placement.remedies.length > 0 && (
          <>
            <h3>{t`What would help`}</h3>
            {placement.remedies.map((one) => (
              <p key={one.text}>{sentence(one.text)}</p>
            ))}
          </>
        )}
        <Scores placement={placement} />
      </div>
    </div>
  );
}

const parts = ["compute", "memory", "network", "thermal", "bandwidth"] as const;
const weights = { compute: 40, memory: 30, network: 15, thermal: 10, bandwidth: 5 };
const heads = { compute: t`comp`, memory: t`mem`, network: t`net`, thermal: t`heat`, bandwidth: "p2p" };

const SCORES_SHOWN = 8;

/** Of 100, in its five parts: the order in which devices are tried first. Each name has a line of its own; equal devices
 * of one machine that have equal scores share it. */
function Scores({ placement }: { placement: Placement }) {
  const { state } = useApp();
  const [all, setAll] = useState(false);
  const rows = scoreRows(state.value, placement);
  if (rows.length === 0 || placement.devices.length < 2) return null;
  return (
    <section class="scores">
      <h3>{t`Device score`}</h3>
      <table>
        <thead>
          <tr>
            {parts.map((one) => (
              <th scope="col" key={one} title={t`${word(one)}, ${weights[one]} at most`}>
                {heads[one]}
              </th>
            ))}
            <th scope="col">{t`score`}</th>
          </tr>
        </thead>
        {(all ? rows : rows.slice(0, SCORES_SHOWN)).map(({ key, name, figures, total }) => (
          <tbody key={key}>
            <tr>
              <th scope="rowgroup" colSpan={parts.length + 1}>
                {name}
              </th>
            </tr>
            <tr>
              {figures.map((one, i) => (
                <td key={parts[i]}>{one}</td>
              ))}
              <td>
                <b>{total}</b>
              </td>
            </tr>
          </tbody>
        ))}
      </table>
      {rows.length > SCORES_SHOWN && (
        <button type="button" class="btn small-btn" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t`Show fewer` : t`Show all ${rows.length}`}
        </button>
      )}
      <p class="small faint">{t`It only decides where the search begins.`}</p>
    </section>
  );
}

function scoreRows(state: State, { devices }: Placement) {
  const scored = devices.filter((one) => one.score !== null).sort((a, b) => b.score!.total - a.score!.total);
  const alike = new Map<string, { ids: string[]; figures: string[]; total: string }>();
  for (const { device_id, score } of scored) {
    const record = state.devices[device_id]?.record;
    const figures = parts.map((one) => figure(score![one] * weights[one]));
    const total = figure(score!.total * 100);
    const key = [record?.node_id, record?.name ?? device_id, ...figures, total].join("\n");
    const known = alike.get(key);
    if (known) known.ids.push(device_id);
    else alike.set(key, { ids: [device_id], figures, total });
  }
  return [...alike].map(([key, { ids, ...rest }]) => {
    const label = deviceLabel(state, ids[0]!);
    return { ...rest, key, name: ids.length > 1 ? `${ids.length} × ${label.replace(/ · \d+$/, "")}` : label };
  });
}

/** What is said of a device: its name, with its number where there are several, leads to it. What is said of several in
 * the same words is said once. */
function About({ devices, text }: { devices: readonly string[]; text: string }) {
  const { state } = useApp();
  const device = devices[0]!;
  const name = deviceName(state.value, device);
  const at = text.indexOf(name);
  if (devices.length > 1)
    return (
      <span>
        {sentence(text)} <b>{t`The same for ${devices.length} of them.`}</b>
      </span>
    );
  if (at < 0) return <span>{sentence(text)}</span>;
  return (
    <span>
      {at > 0 && text[0]!.toUpperCase() + text.slice(1, at)}
      <b>
        <a href={deviceHref(device)}>{name}</a>
      </b>
      {text.slice(at + name.length)}.
    </span>
  );
}

/** Each text once, with the devices of which it is said: those of one name on one machine differ by their number. */
function byText(state: State, why: Placement["why"]): { text: string; devices: string[] }[] {
  const found = new Map<string, { text: string; devices: string[] }>();
  for (const { device_id, text } of why) {
    if (device_id === null) continue;
    const plain = state.devices[device_id]?.record.name ?? "";
    const key = text.replace(deviceName(state, device_id), plain);
    const known = found.get(key);
    if (known) found.set(key, { text: key, devices: [...known.devices, device_id] });
    else found.set(key, { text, devices: [device_id] });
  }
  return [...found.values()];
}
