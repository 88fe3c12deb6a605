/* Usage: what requests to models used, by token, model or device, and what its energy costs. */
import { useEffect, useState } from "preact/hooks";
import { isRefusal, readTokens } from "../../command/access";
import type { Refusal } from "../../command/tried";
import { type By, readUsage } from "../../command/usage";
import type { Token, UsageRow } from "../../lib/api.gen";
import { readPriceText, writePriceText } from "../../lib/prefs";
import { isLive, serverTime } from "../../state/select";
import { readPrice } from "../../state/usage";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { RefusalNote } from "../parts";
import { Page } from "../shell";
import { UsageTable } from "./table";

const DAY_MS = 86_400_000;
const AGAIN_MS = 10_000;
const kinds: readonly { by: By; name: string }[] = [
  { by: "token", name: t`By token` },
  { by: "model", name: t`By model` },
  { by: "device", name: t`By device` },
];
const spans: readonly { days: number; name: string }[] = [
  { days: 1, name: "24 h" },
  { days: 7, name: "7 d" },
  { days: 30, name: "30 d" },
  { days: 366, name: "1 y" },
];

/** Read when the page opens, on every reconnect, and again while it is shown. */
function useUsage(by: By, days: number): { rows: readonly UsageRow[] | null; refusal: Refusal | null } {
  const { state, server } = useApp();
  const [rows, setRows] = useState<readonly UsageRow[] | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  useEffect(() => {
    if (!live) return;
    let wanted = true;
    const read = async (): Promise<void> => {
      const outcome = await readUsage(server, by, days * DAY_MS, serverTime(state.peek(), Date.now()));
      if (!wanted) return;
      setRefusal(isRefusal(outcome) ? outcome : null);
      if (!isRefusal(outcome)) setRows(outcome);
    };
    setRows(null);
    void read();
    const again = setInterval(() => void read(), AGAIN_MS);
    return () => {
      wanted = false;
      clearInterval(again);
    };
  }, [live, by, days]);
  return { rows, refusal };
}

/** The tokens that there are, read again when a row comes that is of another; null while they are not known. */
function useTokens(rows: readonly UsageRow[] | null, asked: boolean): readonly Token[] | null {
  const { state, server } = useApp();
  const [read, setRead] = useState<{ of: string; tokens: readonly Token[] } | null>(null);
  const live = isLive(state.value);
  const of = asked && rows ? rows.map((one) => one.key).sort().join() : "";
  useEffect(() => {
    if (!live || of === "") return;
    let wanted = true;
    void readTokens(server).then((outcome) => wanted && !isRefusal(outcome) && setRead({ of, tokens: outcome }));
    return () => void (wanted = false);
  }, [live, of]);
  return read?.of === of ? read.tokens : null;
}

export function UsagePage() {
  const { state } = useApp();
  const [by, setBy] = useState<By>("token");
  const [days, setDays] = useState(1);
  const [price, setPrice] = useState(readPriceText());
  const { rows, refusal } = useUsage(by, days);
  const scopes = state.value.login?.scopes ?? [];
  const all = scopes.includes("admin");
  const told = all || scopes.includes("observe"); // others are told no devices, and models by their names
  const tokens = useTokens(rows, all && by === "token");
  const known = { tokens, models: told ? state.value.models : null, devices: told ? state.value.devices : null };
  return (
    <Page title={t`Usage`}>
      <section class="panel" aria-label={t`Usage`}>
        <div class="panel-head usage-head">
          <div class="seg" role="group" aria-label={t`Count by`}>
            {kinds.map((one) => (
              <button key={one.by} type="button" aria-pressed={by === one.by} onClick={() => setBy(one.by)}>
                {one.name}
              </button>
            ))}
          </div>
          <div class="seg" role="group" aria-label={t`Time span`}>
            {spans.map((one) => (
              <button key={one.days} type="button" aria-pressed={days === one.days} onClick={() => setDays(one.days)}>
                {one.name}
              </button>
            ))}
          </div>
          <label class="small price">
            {t`Price per kWh`}
            <input
              type="text"
              inputMode="decimal"
              maxLength={12}
              placeholder="0.30"
              aria-invalid={price.trim() !== "" && readPrice(price) === null}
              value={price}
              onInput={(event) => {
                setPrice(event.currentTarget.value);
                writePriceText(event.currentTarget.value);
              }}
            />
          </label>
        </div>
        <RefusalNote refusal={refusal} />
        {rows ? (
          <UsageTable rows={rows} by={by} price={readPrice(price)} known={known} />
        ) : (
          !refusal && <p class="panel-body quiet skeleton">{t`Reading the usage.`}</p>
        )}
        <p class="panel-body quiet small">
          {!all && `${t`This token sees what it used itself.`} `}
          {t`Hours are kept for 8 days, days (UTC) for a year. The price stays in this browser.`}
        </p>
      </section>
    </Page>
  );
}
