/* A conversation with a model: what was said, what is being said, and how it is asked. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../../command/chat";
import { isRefused } from "../../command/models";
import type { Refusal } from "../../command/tried";
import type { SamplingUsed } from "../../lib/api.gen";
import { type Call, type Said, type Sampling, type Turn, hear, nothingSaid, openCalls, usualSampling } from "../../state/chat";
import { RefusalNote } from "../parts";
import { Composer } from "./composer";
import { useConversations } from "./conversations";
import { History } from "./history";
import { Settings } from "./settings";
import { CallAnswer, TurnView } from "./turn";

/** Who answers. */
export interface Partner {
  readonly name: string;
  /** Whether it has a chat template; without one it goes on from the last text. */
  readonly chat: boolean;
  /** What a request draws by that says nothing; null: not known. */
  readonly sampling: SamplingUsed | null;
  /** What is sent now is answered later. */
  readonly waits: boolean;
}

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
  const [running, setRunning] = useState<AbortController | null>(null);
  const [partial, setPartial] = useState<{ said: Said; firstMs: number | null } | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const end = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  useEffect(() => {
    if (follow.current) end.current?.scrollIntoView({ block: "end" });
  }, [partial, open]);
  useEffect(() => () => running?.abort(), [running]);

  const send = async (turns: readonly Turn[]): Promise<void> => {
    if (!partner) return;
    const control = new AbortController();
    const asked = { ...open, at: Date.now(), turns };
    const began = performance.now();
    let said = nothingSaid;
    let firstMs: number | null = null;
    answering.current = asked.id;
    talks.put(asked);
    setRefusal(null);
    setRunning(control);
    setPartial({ said, firstMs });
    follow.current = true;
    let drawn = false;
    const outcome = await ask({
      model: partner.name,
      chat: partner.chat,
      system: open.system,
      turns,
      tools: open.tools ?? "",
      sampling,
      signal: control.signal,
      onDelta: (delta) => {
        said = hear(said, delta);
        if (said.text === "" && said.thought === "" && said.calls.length === 0) return;
        firstMs ??= performance.now() - began;
        if (drawn) return;
        drawn = true;
        requestAnimationFrame(() => {
          drawn = false;
          setPartial((now) => now && { said, firstMs });
        });
      },
    });
    const restMs = performance.now() - began - (firstMs ?? 0);
    answering.current = null;
    setRunning(null);
    setPartial(null);
    if (isRefused(outcome)) setRefusal(outcome);
    if (firstMs === null && isRefused(outcome)) return;
    const told = isRefused(outcome) ? { tokens: null, promptTokens: null, reason: "error" } : outcome;
    const figures = { firstMs: firstMs ?? 0, restMs, ...told };
    const { text, thought, calls } = said;
    const more = { ...(thought ? { thought } : {}), ...(calls.length ? { calls } : {}) };
    talks.put({ ...asked, turns: [...turns, { role: "assistant", text, ...more, model: partner.name, figures }] });
  };
  const busy = running !== null;
  const again = (): void => {
    const turns = open.turns;
    const last = turns.map((turn) => turn.role).lastIndexOf("user");
    if (last >= 0) void send(turns.slice(0, last + 1));
  };
  const waiting = busy ? [] : openCalls(open.turns);
  // The model goes on once each of its calls has an answer.
  const answer = (call: Call, text: string): void => {
    const turns: readonly Turn[] = [...open.turns, { role: "tool", text, callId: call.id }];
    if (openCalls(turns).length) talks.put({ ...open, at: Date.now(), turns });
    else void send(turns);
  };
  return (
    <div class="talk-grid">
      <section class="panel talk" aria-label="Conversation">
        <div class="panel-head">
          {choose}
          <span class="aside">
            <button class="btn small-btn" type="button" disabled={busy || open.turns.length === 0} onClick={talks.begin}>
              New
            </button>
          </span>
        </div>
        <div class="turns" aria-live="polite" aria-busy={busy}>
          {open.turns.length === 0 && !partial && begin}
          {open.turns.map((turn, i) => (
            <TurnView key={i} turn={turn} />
          ))}
          {partial && <TurnView turn={{ role: "assistant", ...partial.said }} writing />}
          {waiting.map((call) => (
            <CallAnswer key={call.id} call={call} send={(text) => answer(call, text)} />
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
          canAgain={open.turns.some((turn) => turn.role === "user")}
          send={(text) => void send([...open.turns, { role: "user", text }])}
          stop={() => running?.abort()}
          again={again}
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
          keeping={talks.keeping}
        />
      </aside>
    </div>
  );
}
