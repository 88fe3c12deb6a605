/* Adding models: a file on the server's machine, a URL, Hugging Face, the Ollama library; or a search. */
import { useRef, useState } from "preact/hooks";
import { type Found, addModel, isRefused, notSearched, searchModels } from "../../command/models";
import type { Refusal } from "../../command/tried";
import type { ModelFound } from "../../lib/api.gen";
import { count, memory } from "../../lib/format";
import { isConverted, isSource } from "../../state/models";
import { obstacle } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command, CopyId } from "../command-line";
import { Figure, MarkIcon, NotReported, Panel, RefusalNote } from "../parts";
import { ChooseFiles } from "./upload";

export function AddPanel({ first }: { first: boolean }) {
  const { state, server } = useApp();
  const [text, setText] = useState("");
  const [access, setAccess] = useState("");
  const [busy, setBusy] = useState<"add" | "search" | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [found, setFound] = useState<Found | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const why = obstacle(state.value);
  const source = isSource(text);
  const add = async (): Promise<void> => {
    setBusy("add");
    const outcome = await addModel(server, text.trim(), access.trim() || null);
    setBusy(null);
    setRefusal(outcome);
    if (!outcome) setText("");
  };
  const search = async (): Promise<void> => {
    setBusy("search");
    const outcome = await searchModels(server, text.trim());
    setBusy(null);
    const silent = isRefused(outcome) ? null : notSearched(outcome);
    setRefusal(isRefused(outcome) ? outcome : silent);
    setFound(isRefused(outcome) || silent ? null : outcome);
  };
  const submit = (event: Event): void => {
    event.preventDefault();
    if (text.trim() === "") field.current?.focus();
    else void (source ? add() : search());
  };
  return (
    <Panel title={first ? t`Add the first model` : t`Add a model`}>
      <div class="panel-body add-model">
        {first && (
          <p class="quiet">
            {t`A model is a GGUF file, or safetensors that the server converts: a file of this machine, which you upload; one on the server's machine; or one that the server downloads. You load it onto a device, and it answers on the Playground and at /v1.`}
          </p>
        )}
        <form onSubmit={submit} class="add-form">
          <input
            ref={field}
            value={text}
            spellcheck={false}
            autocapitalize="off"
            aria-label={t`Where the model is, or words to search for`}
            placeholder={t`/models/file.gguf or a directory, hf:owner/repo, ollama:name:tag, https://…, or words to search for`}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button class={`btn ${source ? "primary" : ""}`} type="submit" disabled={why !== null || busy !== null} title={why ?? undefined}>
            {busy === "search" ? t`Searching` : busy === "add" ? t`Adding` : source || text.trim() === "" ? t`Add` : t`Search`}
          </button>
        </form>
        <p class="add-file">
          <ChooseFiles class={first ? "primary" : ""} word={t`Choose a file`} />
          <span class="small quiet">{t`of this machine, or drop .gguf files anywhere on this page: they are uploaded to the server`}</span>
        </p>
        <p class="small quiet">
          {t`A directory of the server or a repository of Hugging Face that has only safetensors is converted on the server. Until that is done, a repository takes its size twice on the server's disk.`}
        </p>
        <details class="small">
          <summary>{t`The source needs an access token`}</summary>
          <label class="in">
            <span class="label">{t`Access token for Hugging Face or the other server`}</span>
            <input
              type="password"
              autocomplete="off"
              value={access}
              onInput={(event) => setAccess(event.currentTarget.value)}
            />
          </label>
          <p class="faint">{t`The server keeps it in memory only, until the download has ended.`}</p>
        </details>
        <RefusalNote refusal={refusal} />
        {first && <Command text="exogpu model add ./file.gguf" />}
      </div>
      {found && <Results found={found} close={() => setFound(null)} />}
    </Panel>
  );
}

const fitWords: Record<ModelFound["fits"], string> = {
  device: t`fits one device`,
  devices: t`fits only across several devices`,
  no: t`too large for this cluster`,
  unknown: t`size not known`,
};

function Results({ found, close }: { found: Found; close: () => void }) {
  return (
    <section class="found" aria-label={t`Search results`}>
      <div class="found-head">
        <h3>{found.results.length === 0 ? t`Nothing found` : count(found.results.length, "result")}</h3>
        {found.unreachable.length > 0 && (
          <span class="small warm">
            <MarkIcon mark="throttled" class="mini" />{" "}{t`not answering: ${found.unreachable.join(", ")}`}
          </span>
        )}
        <button class="btn small-btn" type="button" onClick={close}>
          {t`Close`}
        </button>
      </div>
      <ul class="rows">
        {found.results.map((one) => (
          <ResultRow key={one.source} one={one} />
        ))}
      </ul>
    </section>
  );
}

function ResultRow({ one }: { one: ModelFound }) {
  const { state, server } = useApp();
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const here = one.added || Object.values(state.value.models).some((model) => model.source === one.source);
  const why = obstacle(state.value);
  const add = async (): Promise<void> => {
    setBusy(true);
    setRefusal(await addModel(server, one.source, null));
    setBusy(false);
  };
  return (
    <li class="found-row">
      <span class="found-what">
        <b>{one.name}</b>
        <span class="faint">
          <CopyId text={one.source} />
        </span>
        {isConverted(one.source) && <span class="small quiet">{t`safetensors, converted on this server`}</span>}
      </span>
      <span class={`verdict ${one.fits === "device" ? "ok" : one.fits === "unknown" ? "" : "wait"}`}>
        <MarkIcon mark={one.fits === "device" ? "ok" : one.fits === "no" ? "offline" : "info"} />
        {fitWords[one.fits]}
      </span>
      <span class="num">{one.bytes === null ? <NotReported /> : <Figure {...memory(one.bytes)} />}</span>
      <button
        class="btn small-btn"
        type="button"
        disabled={here || busy || why !== null}
        title={why ?? undefined}
        aria-label={t`Add ${one.name}`}
        onClick={() => void add()}
      >
        {here ? t`Added` : busy ? t`Adding` : t`Add`}
      </button>
      <RefusalNote refusal={refusal} />
    </li>
  );
}
