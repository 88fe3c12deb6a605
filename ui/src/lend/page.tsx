/* What the page /lend shows, by the state of the node. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count, figure } from "../lib/format";
import { t, tx } from "../text/text";
import { LanguageButton } from "../view/language";
import type { App, View } from "./main";
import type { NodeState, Readings, Rest } from "./messages";
import { DISTRUST, type Obstacle, trustSteps } from "./obstacle";
import { StoreSelect, Stored, hasStored, size } from "./stored";

const MIB = 2 ** 20;
const LIMITS = [256 * MIB, 512 * MIB, 768 * MIB, 1024 * MIB, 2048 * MIB, 4096 * MIB];

export function Page({ app }: { app: App }) {
  const view = app.view.value;
  return (
    <>
      <header class="lend-head">
        <b>exogpu</b>
        <span class="quiet">{location.host}</span>
        <LanguageButton reload={() => app.reload()} />
      </header>
      <Body app={app} view={view} />
    </>
  );
}

function Body({ app, view }: { app: App; view: View }) {
  switch (view.kind) {
    case "looking":
      return <Card title={t`Lend this device`}>{t`Looking for a GPU…`}</Card>;
    case "obstacle":
      return <ObstacleCard obstacle={view.obstacle} system={view.system} />;
    case "no_token":
      return (
        <Card title={t`Lend this device`}>
          <p>{t`To lend this device's GPU, open the address that somebody made for you: scan its QR code, or open the whole link.`}</p>
          <p class="quiet">
            {tx`The owner of the cluster makes one by ${<code>exogpu lend</code>}, or on the page Access of the dashboard. An address works once, unless it was made for more.`}
          </p>
        </Card>
      );
    case "ask":
      return <Ask app={app} view={view} />;
    case "node":
      return <NodeCard app={app} view={view} />;
  }
}

function Card({ title, children, state }: { title: string; children: ComponentChildren; state?: string }) {
  return (
    <section class="lend-card" data-state={state}>
      <h1>{title}</h1>
      {children}
    </section>
  );
}

function ObstacleCard({ obstacle, system }: { obstacle: Obstacle; system: string | null }) {
  return (
    <Card title={obstacle.title} state="obstacle">
      <p>{obstacle.text}</p>
      {obstacle.steps.length > 0 && (
        <ul class="lend-steps">
          {obstacle.steps.map((step) => (
            <li key={step}>{step}</li>
          ))}
        </ul>
      )}
      {obstacle.certificate && <TrustSteps system={system} />}
      <p class="quiet small">{t`Nothing of this device was sent or stored.`}</p>
    </Card>
  );
}

function TrustSteps({ system }: { system: string | null }) {
  return (
    <>
      <ol class="lend-steps">
        {trustSteps(system).map((step) => (
          <li key={step}>{step}</li>
        ))}
      </ol>
      <p class="quiet small">
        {t`Whoever made the address sees the right fingerprint beside it. If it differs, somebody is between this device and the cluster. With a public name and certificate for the server, none of this is needed.`}
      </p>
      <a class="btn" href="/ca.pem" download="exogpu-authority.pem">
        {t`Certificate`}
      </a>
    </>
  );
}

function Ask({ app, view }: { app: App; view: Extract<View, { kind: "ask" }> }) {
  const [name, setName] = useState(view.name);
  const [limit, setLimit] = useState(view.limit_bytes);
  const [store, setStore] = useState(view.store_bytes);
  const choices = app.choices.value;
  const submit = (event: Event): void => {
    event.preventDefault();
    app.yes({ name, limit_bytes: limit, store_bytes: store, rest: view.rest });
  };
  return (
    <Card title={t`Lend this device's GPU?`} state="ask">
      <p>
        {tx`The cluster at ${<b>{location.host}</b>} would like to compute on:`}{" "}<b>{view.gpu}</b>
      </p>
      <dl class="lend-terms">
        <dt>{t`What is shared`}</dt>
        <dd>
          {t`The GPU, and as much of its memory as you say. The cluster also sees a name for this device, its system, the browser's description of the GPU, the network address, and, if the browser tells them, battery, charging, whether this page is in front, and how busy the processor is. No files, no camera, no location.`}
        </dd>
        <dt>{t`What is stored here`}</dt>
        <dd>
          {t`A name and a secret by which the cluster knows this browser again: less than 1 KB.`}{" "}
          {choices.length > 1
            ? t`Also, up to the limit below, the weights of models that compute here, so that they need not be fetched again.`
            : t`No weights of models stay here.`}{" "}
          {t`No prompts, no answers and no other data stay here.`}
        </dd>
        <dt>{t`How it ends`}</dt>
        <dd>
          {t`Close this page, or press Stop: the GPU is free at once. What is stored stays until you delete it, here or in the browser's settings. “Leave and delete” removes what is stored here and there.`}
        </dd>
        <dt>{t`What it costs`}</dt>
        <dd>{t`Power and heat while something computes. What others compute here can be seen by whoever controls this browser.`}</dd>
      </dl>
      <form onSubmit={submit} class="lend-form">
        <label>
          {t`Name`}
          <input value={name} maxLength={64} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          {t`Memory at most`}
          <select value={limit} onChange={(event) => setLimit(Number(event.currentTarget.value))}>
            {LIMITS.map((bytes) => (
              <option key={bytes} value={bytes}>
                {size(bytes)}
              </option>
            ))}
          </select>
        </label>
        {choices.length > 1 && (
          <label>
            {t`Keep weights, at most`}
            <StoreSelect choices={choices} value={store} change={setStore} />
          </label>
        )}
        <button class="btn primary" type="submit">
          {t`Yes, lend it`}
        </button>
        <p class="quiet small">{t`If not, close this page. Nothing was sent or stored yet.`}</p>
      </form>
    </Card>
  );
}

const TITLES: Record<NodeState["phase"], string> = {
  connecting: t`Connecting…`,
  online: t`This device is lent`,
  waiting: t`The server cannot be reached`,
  refused: t`The server does not let this device in`,
  outdated: t`This page is of another version than the server`,
  elsewhere: t`Another tab lends already`,
  stopped: t`Stopped`,
  left: t`Left`,
};

function NodeCard({ app, view }: { app: App; view: Extract<View, { kind: "node" }> }) {
  const { state } = view;
  return (
    <Card title={state.phase === "waiting" && state.message ? t`This device is not lent at the moment` : TITLES[state.phase]} state={state.phase}>
      <div role="status">
        <Explanation app={app} state={state} />
      </div>
      {view.certificate && (
        <>
          <p>{DISTRUST}</p>
          <TrustSteps system={app.system} />
        </>
      )}
      {state.phase === "online" && <Live app={app} view={view} />}
      {state.phase !== "online" && state.phase !== "refused" && state.phase !== "left" && hasStored(app, view) && (
        <dl class="facts lend-facts">
          <Stored app={app} view={view} />
        </dl>
      )}
      {!view.kept && state.phase === "online" && (
        <p class="small warm">{t`This browser keeps nothing (a private window?): after closing, it needs a new address to come back.`}</p>
      )}
      <Buttons app={app} phase={state.phase} />
    </Card>
  );
}

function Explanation({ app, state }: { app: App; state: NodeState }) {
  switch (state.phase) {
    case "online":
      return <p>{t`Keep this page open, and in front or beside others. Closing it ends everything at once.`}</p>;
    case "waiting":
      return (
        <p>
          {sentence(state.message ?? (state.reached ? t`The connection is gone. What was computed here for others has ended.` : t`It does not answer.`))}{" "}
          {state.hint && `${sentence(state.hint)} `}
          {tx`Trying again ${<Countdown until={state.retry_at} />}.`}{" "}
          <button class="link-btn" type="button" onClick={() => app.tryNow()}>
            {t`Try now`}
          </button>
        </p>
      );
    case "refused":
      return (
        <>
          <p>{sentence(state.message ?? "")}</p>
          <p class="quiet">{sentence(state.hint ?? t`Ask for a new address.`)}</p>
        </>
      );
    case "outdated":
      return (
        <p>
          <button class="link-btn" type="button" onClick={() => app.reload()}>
            {t`Load this page again`}
          </button>
          .
        </p>
      );
    case "elsewhere":
      return (
        <p>
          {tx`Another tab or window of this browser is connected as this device. Use that one, or close it and ${<button class="link-btn" type="button" onClick={() => app.tryNow()}>
            {t`try again`}
          </button>}.`}
        </p>
      );
    case "stopped":
      return <p>{t`Nothing is lent. The cluster shows this device as offline.`}</p>;
    default:
      return null;
  }
}

/** What the worker that is the node says itself: it has no texts in other languages. */
const ofWorker: Readonly<Record<string, string>> = {
  "the server does not let this device in": t`the server does not let this device in`,
  "the connection to the server is gone": t`the connection to the server is gone`,
  "the server refused": t`the server refused`,
};

const sentence = (told: string): string => ended(ofWorker[told] ?? told);
const ended = (text: string): string => (text ? `${text[0]!.toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "");

function Countdown({ until }: { until: number | null }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const left = Math.max(0, Math.round(((until ?? now) - now) / 1000));
  return <>{left > 0 ? t`in ${left} s` : t`now`}</>;
}

const PRESSURES: Record<NonNullable<Readings["pressure"]>, string> = {
  nominal: t`nominal pressure`,
  fair: t`fair pressure`,
  serious: t`serious pressure`,
  critical: t`critical pressure`,
};
const NOT_REPORTED = <span class="not-reported">{t`not reported`}</span>;

function Live({ app, view }: { app: App; view: Extract<View, { kind: "node" }> }) {
  const { state } = view;
  const readings = app.readings.value;
  return (
    <dl class="facts lend-facts">
      <dt>{t`Name`}</dt>
      <dd>{view.name}</dd>
      <dt>{t`GPU`}</dt>
      <dd>
        {state.device}
        <Verdict state={state} />
      </dd>
      <dt>{t`Memory`}</dt>
      <dd>
        {t`${size(state.held_bytes)} of ${size(view.limit_bytes)} in use${users(state)}`}
      </dd>
      <dt>{t`Models`}</dt>
      <dd>{state.stages.length ? state.stages.map((one) => <StageLine key={`${one.name} ${one.first_layer}`} stage={one} />) : t`none: no layers of a model are here`}</dd>
      {hasStored(app, view) && <Stored app={app} view={view} />}
      <dt>{t`Round trip`}</dt>
      <dd>{state.rtt_ms === null ? NOT_REPORTED : `${figure(state.rtt_ms, 1)} ms`}</dd>
      <dt>{t`Battery`}</dt>
      <dd>{batteryText(readings) ?? NOT_REPORTED}</dd>
      <dt>{t`Processor`}</dt>
      <dd>{readings?.pressure ? PRESSURES[readings.pressure] : NOT_REPORTED}</dd>
      <dt>{t`New work`}</dt>
      <dd>
        <RestChoice app={app} rest={view.rest} />
      </dd>
      {app.awake.possible && (
        <>
          <dt>{t`Screen`}</dt>
          <dd>
            <label class="lend-check">
              <input type="checkbox" checked={app.awake.wanted.value} onChange={(event) => app.awake.ask(event.currentTarget.checked)} />{" "}{t`keep it on`}
            </label>
          </dd>
        </>
      )}
    </dl>
  );
}

function users({ sessions, stages, held_bytes }: NodeState): string {
  const all = [sessions && count(sessions, "session"), stages.length && count(stages.length, "model")].filter(Boolean);
  return all.length ? ` ${t`by ${all.join(", ")}`}` : held_bytes ? "" : ` ${t`by nobody`}`;
}

function StageLine({ stage }: { stage: NodeState["stages"][number] }) {
  const { name, first_layer, layer_count, weights_bytes, fetched_bytes, tokens } = stage;
  const layers = layer_count === 1 ? t`layer ${first_layer}` : t`layers ${first_layer} to ${first_layer + layer_count - 1}`;
  return (
    <div data-weights={weights_bytes} data-fetched={fetched_bytes}>
      {t`${name}: ${layers}, ${size(weights_bytes)} of weights (${size(fetched_bytes)} fetched), ${count(tokens, "token")} computed`}
    </div>
  );
}

function Verdict({ state }: { state: NodeState }) {
  if (state.verified === "passed") return <span class="accent">{" "}{t`· verified: it computes correctly`}</span>;
  if (state.verified === "failed") return <span class="crit">{" "}{t`· failed: ${state.verification_error ?? ""}`}</span>;
  return <span class="quiet">{" "}{t`· being verified…`}</span>;
}

const BATTERY_LIMITS = [0, 10, 20, 30, 50, 80];

function RestChoice({ app, rest }: { app: App; rest: Rest }) {
  const { battery_percent, charging } = app.readings.value ?? {};
  const low = charging === false && battery_percent != null && battery_percent < rest.below_percent;
  const levels = BATTERY_LIMITS.includes(rest.below_percent) ? BATTERY_LIMITS : [...BATTERY_LIMITS, rest.below_percent];
  return (
    <>
      <label class="lend-check">
        <input
          type="checkbox"
          checked={rest.hidden}
          onChange={(event) => app.restWhile({ ...rest, hidden: event.currentTarget.checked })}
        />{" "}
        {t`none while this page is in the background`}
      </label>
      <label class="lend-check">
        {t`none on battery`}{" "}
        <select
          value={rest.below_percent}
          onChange={(event) => app.restWhile({ ...rest, below_percent: Number(event.currentTarget.value) })}
        >
          {levels.map((percent) => (
            <option key={percent} value={percent}>
              {percent ? t`below ${percent} %` : t`at no level`}
            </option>
          ))}
        </select>
      </label>
      {low && <p class="small warm">{t`The battery is below that: no new work comes, and layers of models move elsewhere where they fit.`}</p>}
    </>
  );
}

function batteryText(readings: Readings | null): string | null {
  if (!readings || readings.charging === null) return null;
  const level = readings.battery_percent === null ? "" : `${readings.battery_percent} %, `;
  return `${level}${readings.charging ? t`on power` : t`not charging`}`;
}

function Buttons({ app, phase }: { app: App; phase: NodeState["phase"] }) {
  const [sure, setSure] = useState(false);
  if (phase === "refused") return null;
  return (
    <div class="lend-buttons">
      {phase === "stopped" ? (
        <button class="btn primary" type="button" onClick={() => app.resume()}>
          {t`Lend again`}
        </button>
      ) : (
        <button class="btn" type="button" onClick={() => app.stop()}>
          {t`Stop`}
        </button>
      )}
      <button class="btn" type="button" onClick={() => (sure ? app.leave() : setSure(true))}>
        {sure ? t`Yes, leave and delete` : t`Leave and delete`}
      </button>
      {sure && <p class="small quiet">{t`The cluster forgets this device, and this browser forgets the cluster. To come back it needs a new address.`}</p>}
    </div>
  );
}
