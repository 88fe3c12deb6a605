/* Playground: a conversation with a model that is loaded. What is said stays in this browser. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../../command/chat";
import { isRefused } from "../../command/models";
import type { Refusal } from "../../command/tried";
import type { Instance } from "../../lib/api.gen";
import { modelHref, playgroundHref } from "../../lib/route";
import {
  type Call,
  type Conversation,
  type Said,
  type Sampling,
  type Turn,
  hear,
  keepConversations,
  nothingSaid,
  openCalls,
  readConversations,
  usualSampling,
} from "../../state/chat";
import { mayAsk } from "../../state/models";
import { type Choice, type Held, choiceOf, choiceWord, hold, isMoving, moveText } from "../../state/talk";
import { useApp } from "../app-context";
import { Loading } from "../models/instance";
import { Icon, MarkIcon, RefusalNote } from "../parts";
import { Page } from "../shell";
import { Composer } from "./composer";
import { History } from "./history";
import { LoadModel } from "./load";
import { Settings } from "./settings";
import { CallAnswer, TurnView } from "./turn";

export function PlaygroundPage({ id }: { id: string }) {
  const { state } = useApp();
  const all = state.value;
  const held = useRef<Held | null>(null);
  held.current = hold(all, id, held.current);
  const choice = choiceOf(all, held.current);
  // What is shown first is held on to as well: it may move while one talks to it.
  if (!held.current && choice.instance) held.current = hold(all, choice.instance.instance_id, null);
  if (!mayAsk(all.login)) return <NotAllowed />;
  return (
    <Page title="Playground">
      <Talk {...choice} />
    </Page>
  );
}

function NotAllowed() {
  return (
    <Page title="Playground">
      <section class="panel empty">
        <h2>This token cannot use models</h2>
        <p>Using models needs the scope infer. An admin makes such a token on the page Access, or with:</p>
        <code class="code">exogpu token create --name NAME --scopes observe,infer</code>
      </section>
    </Page>
  );
}

const fresh = (): Conversation => ({ id: crypto.randomUUID?.() ?? String(Math.random()), at: Date.now(), system: "", turns: [] });

/** The conversations of this browser, and the one that is open. */
function useConversations() {
  const [all, setAll] = useState<readonly Conversation[]>(readConversations);
  const [open, setOpen] = useState<Conversation>(() => all[0] ?? fresh());
  const put = (one: Conversation): void => {
    setOpen(one);
    setAll((before) => {
      const rest = before.filter((other) => other.id !== one.id);
      const next = one.turns.length ? [one, ...rest] : rest;
      keepConversations(next);
      return next;
    });
  };
  const remove = (id: string): void => {
    const next = all.filter((one) => one.id !== id);
    keepConversations(next);
    setAll(next);
    if (open.id === id) setOpen(next[0] ?? fresh());
  };
  const removeAll = (): void => {
    keepConversations([]);
    setAll([]);
    setOpen(fresh());
  };
  return { all, open, put, show: setOpen, remove, removeAll, begin: () => setOpen(fresh()) };
}

function Talk({ instances, instance, models, model }: Choice) {
  const { state } = useApp();
  const talks = useConversations();
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
    if (!instance) return;
    const control = new AbortController();
    const asked = { ...open, at: Date.now(), turns };
    const began = performance.now();
    let said = nothingSaid;
    let firstMs: number | null = null;
    talks.put(asked);
    setRefusal(null);
    setRunning(control);
    setPartial({ said, firstMs });
    follow.current = true;
    let drawn = false;
    const outcome = await ask({
      model: instance.model_name,
      chat: instance.chat,
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
    setRunning(null);
    setPartial(null);
    if (isRefused(outcome)) setRefusal(outcome);
    if (firstMs === null && isRefused(outcome)) return;
    const told = isRefused(outcome) ? { tokens: null, promptTokens: null, reason: "error" } : outcome;
    const figures = { firstMs: firstMs ?? 0, restMs, tokens: told.tokens, promptTokens: told.promptTokens, reason: told.reason };
    const { text, thought, calls } = said;
    const more = { ...(thought ? { thought } : {}), ...(calls.length ? { calls } : {}) };
    talks.put({ ...asked, turns: [...turns, { role: "assistant", text, ...more, model: instance.model_name, figures }] });
  };
  const busy = running !== null;
  const moves = instance && moveText(state.value, instance);
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
          <Choose instances={instances} instance={instance} models={models} model={model} />
          <span class="aside">
            <button class="btn small-btn" type="button" disabled={busy || open.turns.length === 0} onClick={talks.begin}>
              New
            </button>
          </span>
        </div>
        <div class="turns" aria-live="polite" aria-busy={busy}>
          {open.turns.length === 0 && !partial && !model && !moves && <Begin instance={instance} />}
          {open.turns.map((turn, i) => (
            <TurnView key={i} turn={turn} />
          ))}
          {partial && <TurnView turn={{ role: "assistant", ...partial.said }} writing />}
          {waiting.map((call) => (
            <CallAnswer key={call.id} call={call} send={(text) => answer(call, text)} />
          ))}
          <RefusalNote refusal={refusal} />
          {instance && moves && <Moves instance={instance} text={moves} />}
          {model && !partial && <LoadModel key={model.model_id} model={model} />}
          <div ref={end} />
        </div>
        <Composer
          ready={instance !== null}
          waits={instance?.state === "paused" ? instance.model_name : null}
          busy={busy}
          canAgain={open.turns.some((turn) => turn.role === "user")}
          send={(text) => void send([...open.turns, { role: "user", text }])}
          stop={() => running?.abort()}
          again={again}
        />
      </section>
      <aside class="talk-side">
        <Settings
          chat={instance?.chat ?? true}
          used={instance?.sampling ?? null}
          system={open.system}
          setSystem={(system) => talks.put({ ...open, system })}
          tools={open.tools ?? ""}
          setTools={(tools) => talks.put({ ...open, tools })}
          sampling={sampling}
          setSampling={setSampling}
        />
        <History all={talks.all} open={open.id} busy={busy} show={talks.show} remove={talks.remove} removeAll={talks.removeAll} />
      </aside>
    </div>
  );
}

/** Its model moves, or waits for a place: what happens, in the place where the answer comes. */
function Moves({ instance, text }: { instance: Instance; text: string }) {
  return (
    <div class="moves" role="status">
      <MarkIcon mark={isMoving(instance) ? "draining" : "throttled"} class="mini" />
      <p class="small">
        {text}
        {instance.remedies.length > 0 && (
          <>
            {" "}
            <a class="link" href={modelHref(instance.model_id)}>What would make room for it</a>
          </>
        )}
      </p>
      {instance.progress && <Loading progress={instance.progress} />}
    </div>
  );
}

function Choose({ instances, instance, models, model }: Choice) {
  if (!instance && !model) return <h2>No model is loaded</h2>;
  if (instances.length + models.length === 1)
    return (
      <h2 class="clip">
        <MarkIcon mark={!instance ? "stale" : instance.state === "paused" ? "throttled" : instance.running > 0 ? "computing" : "idle"} class="mini" />{" "}
        {instance ? choiceWord(instance) : model?.name}
      </h2>
    );
  return (
    <select
      aria-label="Model"
      value={instance?.instance_id ?? model?.model_id}
      onChange={(event) => (location.hash = playgroundHref(event.currentTarget.value))}
    >
      {instances.map((one) => (
        <option key={one.instance_id} value={one.instance_id}>
          {choiceWord(one)}
        </option>
      ))}
      {models.map((one) => (
        <option key={one.model_id} value={one.model_id}>
          {one.name} (not loaded)
        </option>
      ))}
    </select>
  );
}

function Begin({ instance }: { instance: Instance | null }) {
  return (
    <div class="begin">
      <Icon name="playground" />
      {instance ? (
        <p>
          {instance.chat
            ? "Ask something. The conversation stays in this browser; the server records how many tokens were used, never the text."
            : "This model has no known chat template: it continues the text that you write."}
        </p>
      ) : (
        <>
          <p>A model answers here once it is loaded.</p>
          <a class="btn primary" href="#/models">
            Models
          </a>
        </>
      )}
    </div>
  );
}
