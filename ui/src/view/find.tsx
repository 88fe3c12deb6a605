/* The search of the whole page, on Ctrl-K: a field and what it finds; Enter opens the marked line. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isRefusal, readTokens } from "../command/access";
import type { Token } from "../lib/api.gen";
import { switchTheme } from "../lib/theme";
import { type Found, find } from "../state/find";
import { t } from "../text/text";
import { useApp } from "./app-context";

const kindWord: Record<Found["kind"], string> = { page: t`Page`, machine: t`Machine`, device: t`Device`, model: t`Model`, token: t`Token`, action: t`Do` };

export default function Find() {
  const { state, server, help, finding } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [marked, setMarked] = useState(0);
  const [tokens, setTokens] = useState<readonly Token[]>([]);
  const found = find(state.value, typed, tokens);
  const at = Math.min(marked, found.length - 1);
  useLayoutEffect(() => {
    dialog.current?.showModal(); // before the next key: what is typed right after Ctrl-K lands in the field
  }, []);
  useEffect(() => {
    if (state.value.login?.scopes.includes("admin")) void readTokens(server).then((all) => isRefusal(all) || setTokens(all));
  }, []);
  useEffect(() => {
    dialog.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at, typed]);

  const run = ({ go }: Found): void => {
    dialog.current?.close();
    if ("href" in go) location.hash = go.href;
    else if (go.act === "theme") switchTheme();
    else if (go.act === "logout") server.logout();
    else help.value = true;
  };
  const keyed = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step && found.length > 0) setMarked((at + step + found.length) % found.length);
    else if (event.key === "Enter" && !event.isComposing && found[at]) run(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="find" aria-label={t`Find`} onClose={({ currentTarget }) => (finding.value = currentTarget.open)}>
      <input
        type="text" // a search field would take the first Escape for itself
        list={undefined}
        role="combobox"
        aria-label={t`Find machines, devices, models, tokens and actions`}
        aria-expanded="true"
        aria-controls="find-list"
        aria-activedescendant={found[at] ? `find-${found[at].id}` : undefined}
        placeholder={t`Machine, device, model, token, page or action`}
        autocomplete="off"
        spellcheck={false}
        value={typed}
        onKeyDown={keyed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setMarked(0);
        }}
      />
      <ul id="find-list" role="listbox" aria-label={t`Found`}>
        {found.map((one, i) => (
          <li key={one.id} id={`find-${one.id}`} role="option" aria-selected={i === at} onMouseMove={() => setMarked(i)} onClick={() => run(one)}>
            <span class="label">{kindWord[one.kind]}</span>
            <span class="clip">{one.name}</span>
            <span class="quiet clip">{one.detail}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="quiet" role="status">{t`Nothing here has that name. Models of Hugging Face are searched on the page Models.`}</p>}
    </dialog>
  );
}
