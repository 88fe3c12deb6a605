/* A new token: its text, shown once, and how it is used. */
import { useState } from "preact/hooks";
import type { MadeToken } from "../../command/access";
import type { Scope } from "../../lib/api.gen";
import { fullTime } from "../../lib/format";
import { qrCode } from "../../lib/qr";
import { isLoopback } from "../../state/access";
import { pageLink, snippets } from "../../state/kinds";
import { readyInstances, sortedModels, talks } from "../../state/models";
import type { State } from "../../state/state";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { Command, Copied, Lines } from "../command-line";
import { useAddress } from "./address";

/** A model to name in an example: one that answers now, else one that is there. */
function exampleModel({ instances, models }: State): string | null {
  const ready = readyInstances(instances).find((one) => talks(models[one.model_id]));
  return ready?.model_name ?? sortedModels(models).find((one) => one.state === "ready" && talks(one))?.name ?? null;
}

/** The quiet zone around a code, in modules. */
const QUIET = 4;

export function Code({ text, label }: { text: string; label: string }) {
  const rows = qrCode(text);
  if (!rows) return null;
  const size = rows.length + 2 * QUIET;
  const path = rows.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : ""))).join("");
  return (
    <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={label} shape-rendering="crispEdges">
      <rect width={size} height={size} />
      <path d={path} />
    </svg>
  );
}

export function Made({ made, scopes, close }: { made: MadeToken; scopes: readonly Scope[]; close: () => void }) {
  const { state } = useApp();
  const address = useAddress();
  const [shown, setShown] = useState(false);
  const use = { token: made.token, address, model: exampleModel(state.value) };
  const link = pageLink(scopes, use);
  const reach = isLoopback(new URL(address).hostname);
  return (
    <div class="dialog-body">
      <h2>{t`The token`}</h2>
      <p>{t`Copy it now: the server keeps only a hash, and nobody can show it again.`}</p>
      <Command text={made.token} />
      <p class="small quiet">{t`Until ${fullTime(Date.parse(made.expires_at))}.`}</p>
      {snippets(scopes, use).map(({ name, text }) => (
        <div class="in" key={name}>
          <span class="label">{name}</span>
          <Lines name={name} text={text} />
        </div>
      ))}
      {address.startsWith("https:") && (
        <p class="small quiet">
          {tx`Clients elsewhere have to trust this server's authority: ${<a href="/ca.pem" download="exogpu-authority.pem">exogpu-authority.pem</a>}.`}
        </p>
      )}
      {reach && (
        <p class="small quiet">
          {tx`This address works on this machine only. For others, start the server with ${<Copied text="exogpu serve --lan" />}.`}
        </p>
      )}
      {link && !reach && (
        <div class="in">
          {shown ? (
            <>
              <Code text={link} label={t`QR code that opens this page with the token`} />
              <span class="small quiet">{t`It opens this page, logged in. Whoever photographs it has the token.`}</span>
            </>
          ) : (
            <button class="btn" type="button" onClick={() => setShown(true)}>
              {t`Show a QR code for a phone`}
            </button>
          )}
        </div>
      )}
      <div class="dialog-acts">
        <button class="btn primary" type="button" onClick={close}>
          {t`I have it`}
        </button>
      </div>
    </div>
  );
}
