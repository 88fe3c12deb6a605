/* The catalogue: named models, whether each fits here and how fast it would be, and the one button that downloads it,
 * loads it and opens the conversation. */
import { useEffect, useState } from "preact/hooks";
import { isRefused } from "../../command/models";
import { askCatalog, askReach, begun, goOn, isBegun, start } from "../../command/start";
import type { Refusal } from "../../command/tried";
import type { CatalogEntry } from "../../lib/api.gen";
import { fits } from "../../lib/fits";
import { figure, sentence } from "../../lib/format";
import { playgroundHref } from "../../lib/route";
import { type Offer, entryFacts, firstFew, fitText, isAnother, offerWords, offers, recommended } from "../../state/catalog";
import { mayAsk, mayManage, talks } from "../../state/models";
import { isLive, obstacle } from "../../state/select";
import { told } from "../../text/said";
import { t, tx } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Command, Copied } from "../command-line";
import { MarkIcon, NothingFits, Panel, RefusalNote } from "../parts";
import { Loading } from "./instance";
import { Progress, RemoveModel } from "./row";
import { ChooseFiles } from "./upload";

/** Its entries; asked again when the devices or the loaded models are others, which changes what fits. */
function useCatalog(): { entries: readonly CatalogEntry[] | null; refusal: Refusal | null } {
  const { state, server } = useApp();
  const { devices, instances, discovering } = state.value;
  const live = isLive(state.value);
  const [entries, setEntries] = useState<readonly CatalogEntry[] | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const about = `${live} ${discovering} ${Object.keys(devices)} ${Object.values(instances).map((one) => `${one.instance_id}${one.state}`)}`;
  useEffect(() => {
    if (!live) return;
    let current = true;
    void askCatalog(server).then((answer) => {
      if (!current) return;
      setRefusal(isRefused(answer) ? answer : null);
      if (!isRefused(answer)) setEntries(answer);
    });
    return () => {
      current = false;
    };
  }, [about]);
  return { entries, refusal };
}

/** Whether the server reaches Hugging Face: asked when this is shown, and again when somebody wants to know. */
function NoHub() {
  const { state, server } = useApp();
  const live = isLive(state.value);
  const [silent, setSilent] = useState<readonly string[] | null>(null);
  const [asking, setAsking] = useState(false);
  const ask = async (): Promise<void> => {
    setAsking(true);
    setSilent(await askReach(server));
    setAsking(false);
  };
  useEffect(() => {
    if (live) void ask();
  }, [live]);
  const why = silent?.find((one) => one.startsWith("Hugging Face"));
  if (!why) return null;
  return (
    <div class="panel-body no-hub" role="status">
      <p>
        <MarkIcon mark="throttled" class="mini" />{" "}
        <b>{t`The server does not reach Hugging Face, so these models cannot be downloaded now.`}</b>{" "}
        <span class="quiet">{sentence(why.replace(/^Hugging Face: /, ""))}</span>
      </p>
      <p>
        {tx`Without a network, copy a .gguf file to this machine and choose it, drop it on the page ${<a href="#/models">{t`Models`}</a>}, or upload it with:`}
      </p>
      <Command text="exogpu model upload ./file.gguf" />
      <span class="no-hub-acts">
        <ChooseFiles class="small-btn" word={t`Choose a file`} />
        <button class="btn small-btn" type="button" disabled={asking || !live} onClick={() => void ask()}>
          {asking ? t`Asking` : t`Ask again`}
        </button>
      </span>
    </div>
  );
}

/** most: only so many of them, and a link to all. filter: only those that fit it. */
export function CatalogPanel({ most, filter = "" }: { most?: number; filter?: string }) {
  const app = useApp();
  const { state } = app;
  const { entries, refusal } = useCatalog();
  useEffect(() => goOn(app), []);
  if (entries?.length === 0) return null;
  const best = entries && recommended(entries);
  const shown = entries && offers(state.value, most ? firstFew(entries, most) : entries).filter((one) => fits(filter, offerWords(one)));
  return (
    <Panel
      title={most ? t`Start with a model` : t`Catalogue`}
      class="catalog"
      label={t`Catalogue`}
      aside={most && entries ? <a href="#/models">{t`all ${figure(entries.length)} models`}</a> : t`speeds are predicted for this cluster as it is now`}
    >
      <RefusalNote refusal={refusal} />
      {mayManage(state.value.login) && <NoHub />}
      {shown?.length === 0 && <NothingFits />}
      {shown ? (
        <ul class="rows">
          {shown.map((one) => (
            <OfferRow key={one.entry.id} offer={one} best={one.entry === best} />
          ))}
        </ul>
      ) : (
        !refusal && <p class={`skeleton panel-body ${most ? "" : "catalog-wait"}`} aria-label={t`The catalogue is being read`} />
      )}
    </Panel>
  );
}

function OfferRow({ offer, best }: { offer: Offer; best: boolean }) {
  const { entry, model, instance } = offer;
  const fits = entry.fits === "device" || entry.fits === "devices";
  const refusal = begun.value[entry.source]?.refusal ?? null;
  return (
    <li class="offer-row">
      <span class="offer-what">
        <b>
          {entry.name} {best && <span class="badge">{t`recommended here`}</span>}
        </b>
        <span class="small quiet">{entryFacts(entry)}</span>
        <span class="small">{sentence(told(entry.good_at))}</span>
        <Trouble offer={offer} />
        {isAnother(offer) && (
          <span class="small warm trouble">
            <MarkIcon mark="throttled" class="mini" />{" "}{t`The hub has replaced this file: it is not the one that is described here. Its SHA-256 is another.`}
          </span>
        )}
        {model?.progress && <Progress of={model.progress} />}
        {instance?.state === "starting" && instance.progress && <Loading progress={instance.progress} />}
        <Details entry={entry} />
      </span>
      <span class={`verdict ${fits ? "ok" : entry.fits === "no" ? "wait" : ""}`} title={entry.why ?? undefined}>
        <MarkIcon mark={fits ? "ok" : entry.fits === "no" ? "offline" : "info"} />
        <span>
          {fitText(entry)}
          {fits && entry.why && <span class="small quiet offer-where">{t`on ${entry.why}`}</span>}
        </span>
      </span>
      <span class="acts">
        <Acts offer={offer} best={best} />
      </span>
      <RefusalNote refusal={refusal} />
    </li>
  );
}

/** Why it does not come, or did not. While it is tried again it can be given up. */
function Trouble({ offer: { model, instance } }: { offer: Offer }) {
  if (instance?.state === "failed")
    return (
      <span class="small crit trouble">
        <MarkIcon mark="offline" class="mini" /> {sentence(instance.state_reason ?? t`loading it has failed`)}
      </span>
    );
  if (!model || (model.state !== "failed" && model.state !== "missing" && !(model.progress?.retries && model.state_reason))) return null;
  const again = model.state === "downloading";
  return (
    <span class={`small ${again ? "warm" : "crit"} trouble`}>
      <MarkIcon mark={again ? "throttled" : "offline"} class="mini" />
      <span>
        {sentence(model.state_reason ?? t`the file cannot be used`)}
        {again && " "}
        {again && t`It is tried again. If the server has no internet connection, give up and copy a .gguf file to its machine instead.`}
      </span>
    </span>
  );
}

/** One primary button: Load, then Chat. */
function Acts({ offer: { entry, model, instance }, best }: { offer: Offer; best: boolean }) {
  const app = useApp();
  const { state } = app;
  const why = obstacle(state.value);
  if (instance?.state === "running" || instance?.state === "paused")
    return talks(model ?? undefined) && mayAsk(state.value.login) ? (
      <a class="btn small-btn primary" href={playgroundHref(instance.instance_id)} aria-label={t`Chat with ${entry.name}`}>
        {t`Chat`}
      </a>
    ) : (
      <span class="quiet small">{t`loaded`}</span>
    );
  if (!mayManage(state.value.login)) return null;
  if (model?.state === "downloading") return <RemoveModel model={model} word={t`Give up`} busyWord={t`Giving up`} />;
  const busy = instance?.state === "starting" || isBegun(entry.source);
  return (
    <button
      class={`btn small-btn ${best || model ? "primary" : ""}`}
      type="button"
      disabled={busy || why !== null || (entry.fits === "no" && !model)}
      title={why ?? (entry.fits === "no" ? t`It does not fit on the devices of this cluster.` : undefined)}
      aria-label={t`Load ${entry.name}`}
      onClick={() => void start(app, entry.source)}
    >
      {busy ? t`Loading` : model?.state === "failed" ? t`Try again` : t`Load`}
    </button>
  );
}

function Details({ entry }: { entry: CatalogEntry }) {
  return (
    <details class="small">
      <summary>{t`Source`}</summary>
      <dl class="facts">
        <dt>{t`File`}</dt>
        <dd><Copied text={entry.source} /></dd>
        <dt>{t`Revision`}</dt>
        <dd>{entry.revision ? <Copied text={entry.revision} /> : t`unverified`}</dd>
        <dt>SHA-256</dt>
        <dd>{entry.sha256 ? <Copied text={entry.sha256} /> : t`unverified`}</dd>
        {entry.read.map((one) => (
          <>
            <dt>{one.what.map(word).join(", ")}</dt>
            <dd>
              {t`read on ${one.on} from ${one.from}`}
            </dd>
          </>
        ))}
        {entry.unverified.length > 0 && (
          <>
            <dt>{t`Unverified`}</dt>
            <dd>{t`${entry.unverified.map(word).join(", ")}: could not be read`}</dd>
          </>
        )}
      </dl>
    </details>
  );
}
