/* How the model is asked: what it is told first, and how tokens are drawn. */
import { useState } from "preact/hooks";
import type { SamplingUsed } from "../../lib/api.gen";
import { readPrompts, writePrompts } from "../../lib/prefs";
import { type Sampling, sourceOf, stopsOf, stopsText, toolsFault, usualSampling, usualTokens } from "../../state/chat";
import { t } from "../../text/text";
import { Panel } from "../parts";

type Numeric = Exclude<keyof Sampling, "seed" | "stops">;

const knobs: { name: Numeric; label: string; title: string; min: number; max: number; step: number }[] = [
  { name: "temperature", label: t`Temperature`, title: t`0 always takes the most likely token`, min: 0, max: 2, step: 0.05 },
  { name: "topP", label: t`Top p`, title: t`Only the most likely tokens, up to this total probability`, min: 0, max: 1, step: 0.01 },
  { name: "topK", label: t`Top k`, title: t`Only this many of the most likely tokens; 0: all`, min: 0, max: 1000, step: 1 },
  { name: "minP", label: t`Min p`, title: t`Only tokens at least this fraction as likely as the most likely one`, min: 0, max: 1, step: 0.01 },
  { name: "repetition", label: t`Repetition penalty`, title: t`Above 1, tokens that were already used become less likely`, min: 0.5, max: 2, step: 0.01 },
  { name: "presence", label: t`Presence penalty`, title: t`Above 0, tokens that were used at all become less likely`, min: -2, max: 2, step: 0.1 },
  { name: "frequency", label: t`Frequency penalty`, title: t`Above 0, tokens become less likely each time they are used`, min: -2, max: 2, step: 0.1 },
  { name: "maxTokens", label: t`Max tokens`, title: t`The longest answer, in tokens`, min: 1, max: 131072, step: 1 },
];

interface Draft {
  value: string;
  /** What was written, once that is done. */
  commit: (text: string) => void;
}

/** What is being written stays, however often the page is drawn anew meanwhile. */
function useDraft({ value, commit }: Draft) {
  const [draft, setDraft] = useState<string | null>(null);
  return {
    value: draft ?? value,
    onInput: (event: { currentTarget: { value: string } }): void => setDraft(event.currentTarget.value),
    onBlur: (): void => setDraft(null), // what is as it was has no change
    onChange: (event: { currentTarget: { value: string } }): void => {
      setDraft(null);
      commit(event.currentTarget.value);
    },
  };
}

function Figures({ min, max, step, placeholder, ...draft }: Draft & { min: number; max?: number; step: number; placeholder?: string }) {
  const whole = Number.isInteger(step) ? "numeric" : "decimal";
  return <input type="number" inputMode={whole} min={min} max={max} step={step} placeholder={placeholder} {...useDraft(draft)} />;
}

function Lines({ rows, placeholder, ...draft }: Draft & { rows: number; placeholder: string }) {
  return <textarea rows={rows} placeholder={placeholder} {...useDraft(draft)} />;
}

const titleOfPrompt = (text: string): string => {
  const line = text.trim().split("\n", 1)[0]!;
  return line.length > 40 ? `${line.slice(0, 39)}…` : line;
};

/** System prompts that this browser keeps. */
function Prompts({ system, setSystem }: { system: string; setSystem: (text: string) => void }) {
  const [all, setAll] = useState(readPrompts);
  const put = (next: readonly string[]): void => {
    writePrompts(next);
    setAll(next);
  };
  const kept = all.includes(system);
  if (all.length === 0 && system.trim() === "") return null;
  return (
    <div class="prompts">
      {all.length > 0 && (
        <select aria-label={t`Kept system prompts`} value={kept ? system : ""} onChange={(event) => event.currentTarget.value && setSystem(event.currentTarget.value)}>
          <option value="">{t`Kept prompts`}</option>
          {all.map((text) => (
            <option key={text} value={text}>
              {titleOfPrompt(text)}
            </option>
          ))}
        </select>
      )}
      {kept ? (
        <button class="btn small-btn" type="button" onClick={() => put(all.filter((text) => text !== system))}>
          {t`Forget this prompt`}
        </button>
      ) : (
        system.trim() !== "" && (
          <button class="btn small-btn" type="button" onClick={() => put([system, ...all])}>
            {t`Keep this prompt`}
          </button>
        )
      )}
    </div>
  );
}

export function Settings({
  chat,
  used,
  system,
  setSystem,
  tools,
  setTools,
  sampling,
  setSampling,
}: {
  chat: boolean;
  /** What a request draws by that says nothing; null: no model is loaded. */
  used: SamplingUsed | null;
  system: string;
  setSystem: (text: string) => void;
  tools: string;
  setTools: (text: string) => void;
  sampling: Sampling;
  setSampling: (sampling: Sampling) => void;
}) {
  const changed = JSON.stringify(sampling) !== JSON.stringify(usualSampling);
  const put = (name: Numeric, text: string, min: number, max: number): void => {
    const value = Number(text);
    if (text === "") setSampling({ ...sampling, [name]: usualSampling[name] });
    else if (Number.isFinite(value)) setSampling({ ...sampling, [name]: Math.min(max, Math.max(min, value)) });
  };
  const usual: Partial<Record<Numeric, number>> = used
    ? {
        temperature: used.temperature.value,
        topP: used.top_p.value,
        topK: used.top_k.value,
        minP: used.min_p.value,
        repetition: used.repetition_penalty.value,
        maxTokens: usualTokens(chat),
      }
    : {};
  return (
    <Panel
      title={t`Settings`}
      aside={
        changed && (
          <button class="text-btn" type="button" onClick={() => setSampling(usualSampling)}>
            {t`Reset`}
          </button>
        )
      }
    >
      <div class="panel-body settings">
        {chat && (
          <label class="in">
            <span class="label">{t`System prompt`}</span>
            <Lines rows={3} value={system} placeholder={t`Instructions that come before the conversation`} commit={setSystem} />
          </label>
        )}
        {chat && <Prompts system={system} setSystem={setSystem} />}
        {chat && (
          <label class="in" title={t`A JSON list of functions that the model may call, as OpenAI's API takes them`}>
            <span class="label">{t`Tools`}</span>
            <Lines rows={2} value={tools} placeholder={'[{"type": "function", "function": {"name": ...}}]'} commit={setTools} />
            {toolsFault(tools) && <span class="small crit">{toolsFault(tools)}</span>}
          </label>
        )}
        {knobs.map(({ name, label, title, min, max, step }) => (
          <label class="setting" key={name} title={title}>
            <span>{label}</span>
            <Figures min={min} max={max} step={step} placeholder={String(usual[name] ?? "")} value={String(sampling[name] ?? "")} commit={(text) => put(name, text, min, max)} />
          </label>
        ))}
        <label class="setting" title={t`The same seed, question and settings give the same answer`}>
          <span>{t`Seed`}</span>
          <Figures
            min={0}
            step={1}
            placeholder={t`any`}
            value={String(sampling.seed ?? "")}
            commit={(text) => {
              const seed = Math.floor(Number(text));
              setSampling({ ...sampling, seed: text === "" || !Number.isSafeInteger(seed) || seed < 0 ? null : seed });
            }}
          />
        </label>
        <label class="in" title={t`An answer ends before the first of these; \\n stands for a new line`}>
          <span class="label">{t`Stop sequences`}</span>
          <Lines
            rows={2}
            value={stopsText(sampling.stops)}
            placeholder={t`One per line`}
            commit={(text) => setSampling({ ...sampling, stops: stopsOf(text) })}
          />
        </label>
        {used && <p class="quiet small">{sourceOf(used)}</p>}
      </div>
    </Panel>
  );
}
