/* A conversation with a model: what was said, what is being said, and how it is asked. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "../../command/chat";
import { isRefused } from "../../command/models";
import type { Refusal } from "../../command/tried";
import type { SamplingUsed } from "../../lib/api.gen";
import { figure } from "../../lib/format";
import { type Call, type Conversation, type Said, type Sampling, type Turn, contextUsed, hear, isSaid, nothingSaid, openCalls, usualSampling } from "../../state/chat";
import { type Place, followers, grow, leafOf, pathTo, placeBefore, showBranch, turnsAt } from "../../state/conversation/branches";
import { t } from "../../text/text";
import { RefusalNote } from "../parts";
import { Composer } from "./composer";
import { useConversations } from "./conversations";
import { History } from "./history";
import { Settings } from "./settings";
import { CallAnswer, type TurnActs, TurnView } from "./turn";

/** Who answers. */
export interface Partner {
  readonly name: string;
  /** Whether it has a chat template; without one it goes on from the last text. */
  readonly chat: boolean;
  /** What a request draws by that says nothing; null: not known. */
  readonly sampling: SamplingUsed | null;
  /** What is sent now is answered later. */
  readonly waits: boolean;
  /** How many tokens a request may have with its answer; null: not known. */
  readonly context: number | null;
  /** Whether its devices report their power. */
  readonly energy: boolean;
}

interface Running {
  readonly control: AbortController;
  /** What it answers. */
  readonly base: Place;
}

/** So many turns are drawn; earlier ones when they are asked for. */
const SHOWN = 60;

/** A conversation. `partner` null: nobody answers now. */
export function Talk({
  partner,
  closed,
  choose,
  begin,
  moves,
  offer,
}: {
  partner: Partner | null;
  /** What stands in the field for a message then. */
  closed: string;
  /** Who it is, or whom to choose. */
  choose: ComponentChildren;
  /** What stands there before anything is said. */
  begin: ComponentChildren;
  /** What happens to the model, where its answer comes. */
  moves?: ComponentChildren;
  /** What would make somebody answer; not while an answer is being written. */
  offer?: ComponentChildren;
}) {
  const answering = useRef<string | null>(null);
  const talks = useConversations(() => answering.current);
  const { open } = talks;
  const [sampling, setSampling] = useState<Sampling>(usualSampling);
  const [running, setRunning] = useState<Running | null>(null);
  const [partial, setPartial] = useState<Said | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [shown, setShown] = useState(SHOWN);
  const end = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  const busy = running !== null;
  const path = useMemo(() => pathTo(open.turns, running?.base ?? leafOf(open)), [open, running]);
  const next = useMemo(() => followers(open.turns), [open.turns]);
  useEffect(() => {
    if (follow.current) end.current?.scrollIntoView({ block: "end" });
  }, [partial, open]);
  useEffect(() => () => running?.control.abort(), [running]);
  useEffect(() => setShown(SHOWN), [open.id]);

  /** Lets the model answer what stands at `base` of this conversation. */
  const answer = async (asked: Conversation, base: Place): Promise<void> => {
    if (!partner) return;
    const control = new AbortController();
    const began = performance.now();
    let said = nothingSaid;
    let pieces = 0;
    let firstMs: number | null = null;
    let lastMs = 0;
    answering.current = asked.id;
    setRefusal(null);
    setRunning({ control, base });
    setPartial(said);
    follow.current = true;
    let drawn = false;
    const outcome = await ask({
      model: partner.name,
      chat: partner.chat,
      system: asked.system,
      turns: turnsAt(asked.turns, pathTo(asked.turns, base)),
      tools: asked.tools ?? "",
      sampling,
      energy: partner.energy,
      signal: control.signal,
      onDelta: (delta) => {
        said = hear(said, delta);
        if (!isSaid(said)) return;
        lastMs = performance.now() - began;
        firstMs ??= lastMs;
        pieces++;
        if (drawn) return;
        drawn = true;
        requestAnimationFrame(() => {
          drawn = false;
          setPartial((now) => now && said);
        });
      },
    });
    answering.current = null;
    setRunning(null);
    setPartial(null);
    if (isRefused(outcome)) setRefusal(outcome);
    if (firstMs === null && isRefused(outcome)) return;
    const told = isRefused(outcome) ? { tokens: null, promptTokens: null, reason: "error" } : outcome;
    const counted = told.tokens === null && pieces > 0 ? { tokens: pieces, about: true as const } : {};
    const figures = { firstMs: firstMs ?? 0, restMs: lastMs - (firstMs ?? 0), ...told, ...counted };
    const { text, thought, calls } = said;
    const more = { ...(thought ? { thought } : {}), ...(calls.length ? { calls } : {}) };
    const newest = talks.newest(asked.id);
    const now = newest && newest.turns.length > base ? newest : asked; // its system prompt may have been changed meanwhile
    talks.put({ ...grow(now, base, { role: "assistant", text, ...more, model: partner.name, figures }), at: Date.now() });
  };

  /** Says something after `before`, and lets it be answered. */
  const say = (before: Place, turn: Turn): void => {
    const asked = { ...grow(open, before, turn), at: Date.now() };
    talks.put(asked);
    void answer(asked, leafOf(asked));
  };
  const leaf = path.at(-1) ?? -1;
  const waiting = busy ? [] : openCalls(turnsAt(open.turns, path));
  // The model goes on once each of its calls has an answer.
  const answerCall = (call: Call, text: string): void => {
    const turn: Turn = { role: "tool", text, callId: call.id };
    const grown = grow(open, leaf, turn);
    if (openCalls(turnsAt(grown.turns, pathTo(grown.turns, leafOf(grown)))).length) talks.put({ ...grown, at: Date.now() });
    else say(leaf, turn);
  };

  const actsOf = (at: Place): TurnActs => {
    const turn = open.turns[at]!;
    const before = placeBefore(open.turns, at);
    const versions = next.get(before) ?? [at];
    const asks = turn.role === "user";
    const change = (text: string): void => {
      if (asks) say(before, { role: "user", text });
      else talks.put({ ...grow(open, before, { role: "assistant", text }), at: Date.now() });
    };
    const unanswered = turn.role !== "assistant" && at === leaf && waiting.length === 0;
    const again = turn.role === "assistant" ? () => void answer(open, before) : unanswered ? () => void answer(open, at) : null;
    return {
      place: versions.indexOf(at),
      count: versions.length,
      show: (place) => !busy && talks.put(showBranch(open, versions[place]!)),
      edit: busy || turn.role === "tool" || (asks && !partner) ? null : change,
      again: busy || !partner ? null : again,
    };
  };

  const used = contextUsed(turnsAt(open.turns, path));
  return (
    <div class="talk-grid">
      <section class="panel talk" aria-label={t`Conversation`}>
        <div class="panel-head">
          {choose}
          <span class="aside">
            {used !== null && (
              <span class="context" title={t`What the model has read of this conversation, with its last answer`}>
                {partner?.context ? t`${figure(used)} of ${figure(partner.context)} tokens` : t`${figure(used)} tokens`}
              </span>
            )}
            <button class="btn small-btn" type="button" disabled={busy || open.turns.length === 0} onClick={talks.begin}>
              {t`New`}
            </button>
          </span>
        </div>
        <div class="turns" aria-live="polite" aria-busy={busy}>
          {open.turns.length === 0 && !partial && begin}
          {path.length > shown && (
            <button
              class="btn small-btn earlier"
              type="button"
              onClick={() => {
                follow.current = false;
                setShown(shown + SHOWN);
              }}
            >
              {t`Show earlier ones, ${figure(path.length - shown)} are hidden`}
            </button>
          )}
          {path.slice(-shown).map((at) => (
            <TurnView key={at} turn={open.turns[at]!} acts={actsOf(at)} />
          ))}
          {partial && <TurnView turn={{ role: "assistant", ...partial }} writing />}
          {waiting.map((call) => (
            <CallAnswer key={call.id} call={call} send={(text) => answerCall(call, text)} />
          ))}
          <RefusalNote refusal={refusal} />
          {moves}
          {!partial && offer}
          <div ref={end} />
        </div>
        <Composer
          ready={partner !== null}
          closed={closed}
          waits={partner?.waits ? partner.name : null}
          busy={busy}
          send={(text) => say(leaf, { role: "user", text })}
          stop={() => running?.control.abort()}
        />
      </section>
      <aside class="talk-side">
        <Settings
          chat={partner?.chat ?? true}
          used={partner?.sampling ?? null}
          system={open.system}
          setSystem={(system) => talks.put({ ...open, system })}
          tools={open.tools ?? ""}
          setTools={(tools) => talks.put({ ...open, tools })}
          sampling={sampling}
          setSampling={setSampling}
        />
        <History
          all={talks.all}
          open={open.id}
          busy={busy}
          show={talks.show}
          remove={talks.remove}
          removeAll={talks.removeAll}
          take={talks.take}
          stored={talks.stored}
          keeping={talks.keeping}
        />
      </aside>
    </div>
  );
}
