/* Tokens: who may do what, until when; making and revoking them. */
import { useState } from "preact/hooks";
import { revokeToken } from "../../command/access";
import type { Lend, Token } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fits } from "../../lib/fits";
import { count, day, figure, fullTime, memory } from "../../lib/format";
import { type TokenState, madeWith, sortedTokens, tokenState, tokenWords } from "../../state/access";
import { obstacle, serverTime } from "../../state/select";
import { plural, t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { CopyId } from "../command-line";
import { Age, Chips, type Mark, MarkIcon, NothingFits, Panel } from "../parts";
import { CreateToken } from "./create";

const marks: Record<TokenState, { mark: Mark; tone: string }> = {
  "in use": { mark: "computing", tone: "accent" },
  good: { mark: "idle", tone: "" },
  "expires soon": { mark: "throttled", tone: "warm" },
  expired: { mark: "offline", tone: "" },
  revoked: { mark: "offline", tone: "" },
};

interface Shown {
  readonly tokens: readonly Token[];
  readonly lends: readonly Lend[];
  readonly changed: () => void;
  readonly filter: string;
}

export function TokenPanel({ tokens, lends, changed, filter }: Shown) {
  const { state } = useApp();
  const [ended, setEnded] = useState(false);
  const at = serverTime(state.value, now.value);
  const sorted = sortedTokens(tokens, at).filter((one) => fits(filter, tokenWords(one, at)));
  const over = sorted.filter((one) => isOver(tokenState(one, at))).length;
  const shown = ended ? sorted : sorted.filter((one) => !isOver(tokenState(one, at)));
  return (
    <Panel title={t`Tokens`} aside={<CreateToken tokens={tokens} lends={lends} changed={changed} />} class="tokens">
      <div class="table-wrap">
        <table class="list token-list">
          <caption class="sr">{t`Tokens`}</caption>
          <thead>
            <tr>
              <th scope="col">{t`Token`}</th>
              <th scope="col" class="w-scopes">
                {t`May`}
              </th>
              <th scope="col" class="w-limits">
                {t`Limits`}
              </th>
              <th scope="col" class="w-time">
                {t`Used`}
              </th>
              <th scope="col" class="w-time">
                {t`Until`}
              </th>
              <th scope="col" class="w-act">
                <span class="sr">{t`Revoke`}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((one) => (
              <TokenRow key={one.token_id} token={one} tokens={tokens} changed={changed} at={at} />
            ))}
          </tbody>
        </table>
      </div>
      {sorted.length === 0 && filter !== "" && <NothingFits />}
      {over > 0 && (
        <p class="more">
          <button class="text-btn" type="button" onClick={() => setEnded(!ended)}>
            {ended ? t`Hide those that ended` : t`Show ${count(over, "token")} that ended`}
          </button>
        </p>
      )}
    </Panel>
  );
}

const isOver = (state: TokenState): boolean => state === "expired" || state === "revoked";

function limitsOf(token: Token): string {
  const { memory_limit_bytes, calls_per_s, max_sessions } = token;
  const held = memory(token.memory_bytes);
  const most = memory_limit_bytes === null ? null : memory(memory_limit_bytes);
  return [
    most ? t`${held.value} ${held.unit} of ${most.value} ${most.unit}` : token.memory_bytes > 0 && t`holds ${held.value} ${held.unit}`,
    calls_per_s !== null && t`${figure(calls_per_s)} calls/s`,
    max_sessions !== null && count(max_sessions, "session"),
  ]
    .filter(Boolean)
    .join(", ");
}

function TokenRow({
  token,
  tokens,
  changed,
  at,
}: {
  token: Token;
  tokens: readonly Token[];
  changed: () => void;
  at: number;
}) {
  const { state, server } = useApp();
  const how = tokenState(token, at);
  const { mark, tone } = marks[how];
  const children = madeWith(tokens, token.token_id);
  const own = state.value.login?.token_id === token.token_id;
  const end = Date.parse(token.revoked_at ?? token.expires_at);
  const size = memory(token.memory_bytes);
  const freed = token.memory_bytes > 0 ? t`, and what it holds (${size.value} ${size.unit}) is freed` : "";
  return (
    <tr class={isOver(how) ? "over" : undefined}>
      <th scope="row">
        <b>{token.name}</b>
        {" "}<span class="small faint"><CopyId text={token.token_id} /></span>
        {own && <span class="small faint">{" "}{t`this login`}</span>}
        <span class={`small token-state ${tone}`}>
          <MarkIcon mark={mark} /> {word(how)}
          {token.sessions > 0 && `, ${count(token.sessions, "session")}`}
        </span>
      </th>
      <td data-name={t`May`}>
        <Chips items={token.scopes} />
      </td>
      <td data-name={t`Limits`} class="quiet">
        {limitsOf(token) || <span class="faint">{t`none of its own`}</span>}
      </td>
      <td data-name={t`Used`} class="quiet">
        {token.last_used_at ? <Age at={token.last_used_at} /> : t`never`}
      </td>
      <td data-name={t`Until`} class={how === "expires soon" ? "warm" : "quiet"} title={fullTime(end)}>
        {day(end)}
      </td>
      <td class="list-act">
        {!isOver(how) && (
          <AskButton
            word={t`Revoke`}
            busyWord={t`Revoking`}
            label={t`Revoke ${token.name}, ${token.token_id}`}
            title={t`Revoke ${token.name}?`}
            confirm={t`Revoke`}
            why={obstacle(state.value)}
            run={async () => {
              const refusal = await revokeToken(server, token.token_id);
              if (!own) changed();
              return refusal;
            }}
          >
            <p>
              {plural(
                token.sessions,
                t`Whoever uses it is cut off at once: ${count(token.sessions, "open session")} ends${freed}. It cannot be undone; make a new one instead.`,
                t`Whoever uses it is cut off at once: ${count(token.sessions, "open session")} end${freed}. It cannot be undone; make a new one instead.`,
              )}
            </p>
            {children.length > 0 && (
              <p>
                {plural(
                  children.length,
                  t`With it ${count(children.length, "token")} made with it ends: ${children.map((one) => one.name).join(", ")}.`,
                  t`With it ${count(children.length, "token")} made with it end: ${children.map((one) => one.name).join(", ")}.`,
                )}
              </p>
            )}
            {own && (
              <p class="warm">
                <MarkIcon mark="throttled" />{" "}{t`It is the token that this page is logged in with.`}
              </p>
            )}
          </AskButton>
        )}
      </td>
    </tr>
  );
}
