/* The login screen: which server this is, why a login is needed, and where tokens come from. */
import { useEffect, useRef, useState } from "preact/hooks";
import { sentence } from "../lib/format";
import type { LoginReason } from "../state/state";
import { t } from "../text/text";
import { useApp } from "./app-context";
import { Command } from "./command-line";
import { LanguageButton } from "./language";
import { MarkIcon } from "./parts";

/** The error in bold, and its consequence. Null without an error. */
function explain(reason: LoginReason): { what: string; next: string } | null {
  switch (reason.kind) {
    case "none":
    case "logged_out":
      return null;
    case "refused":
      return {
        what: sentence(reason.message),
        next: sentence(reason.hint ?? t`Check it, ask an admin for a new one, or make one on the server:`),
      };
    case "forbidden":
      return {
        what: sentence(reason.message),
        next: sentence(
          reason.hint ??
            t`This page needs a token with the scope observe. Ask an admin for one, or make one on the server:`,
        ),
      };
    case "link":
      return { what: sentence(reason.message), next: sentence(reason.hint ?? t`Open a new one, or paste a token.`) };
    case "revoked":
      return {
        what: t`This token was revoked or has expired.`,
        next: t`Ask an admin for a new one, or make one on the server:`,
      };
    case "not_logged_in":
      return { what: t`The server closed the connection during the login.`, next: t`Log in again.` };
  }
}

/** The page came from a server of this machine: its files are within reach. */
const onThisMachine = /^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);

export function Login({ reason }: { reason: LoginReason }) {
  const { state, server } = useApp();
  const [text, setText] = useState("");
  const [keep, setKeep] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const info = state.value.server;
  const wrong = explain(reason);
  useEffect(() => field.current?.focus(), []);

  const submit = (event: Event): void => {
    event.preventDefault();
    const token = text.trim();
    if (token === "") field.current?.focus();
    else server.login(token, keep);
  };

  return (
    <main class="login">
      <form onSubmit={submit} aria-label={t`Log in`}>
        <svg class="mark" aria-hidden="true">
          <use href="#mark" />
        </svg>
        <div>
          <h1>{info?.name ?? "exogpu"}</h1>
          <p class="quiet">{t`Paste a token to see and use its devices.`}</p>
        </div>
        <div class="in">
          <label for="token">{t`Token`}</label>
          <input
            id="token"
            ref={field}
            type="password"
            autocomplete="current-password"
            spellcheck={false}
            value={text}
            aria-invalid={wrong && reason.kind !== "link" ? true : undefined}
            aria-describedby={wrong ? "token-error" : undefined}
            translate={false}
            placeholder="exo_…"
            onInput={(event) => setText(event.currentTarget.value)}
          />
          {wrong && (
            <p class="err" id="token-error" role="alert">
              <MarkIcon mark="offline" />
              <span>
                <b>{wrong.what}</b> {wrong.next}
              </span>
            </p>
          )}
        </div>
        <div class="in">
          {!wrong?.next.endsWith(":") && (
            <p class="label">{onThisMachine ? t`A token is made with:` : t`A token is made on the server's machine, with:`}</p>
          )}
          <Command text="exogpu token create --name laptop --scopes observe" />
          {onThisMachine && (
            <>
              <p class="label">{t`The first one, for an admin, is in the file admin.token of the server's data directory: the one given with --data, else usually:`}</p>
              <Command text="cat ~/.local/share/exogpu/admin.token" />
            </>
          )}
        </div>
        <label class="check">
          <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
          <span>
            {t`Keep on this device`}{" "}<span class="faint">{t`until you log out; otherwise only this tab stays logged in`}</span>
          </span>
        </label>
        <button class="btn primary" type="submit">
          {t`Log in`}
        </button>
        <dl>
          <dt>{t`Server`}</dt>
          <dd>{info ? `exogpu ${info.version}` : t`does not answer, trying again`}</dd>
          <dt>{t`Reached by`}</dt>
          <dd>
            {location.protocol === "https:" ? "TLS" : "HTTP"}, {location.host}
          </dd>
        </dl>
        <LanguageButton />
      </form>
    </main>
  );
}
