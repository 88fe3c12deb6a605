/* Tokens: who may do what, until when; making and revoking them. */
import { useState } from "preact/hooks";
import { revokeToken } from "../../command/access";
import type { Lend, Token } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { count, day, figure, fullTime, memory } from "../../lib/format";
import { type TokenState, madeWith, sortedTokens, tokenState } from "../../state/access";
import { obstacle, serverTime } from "../../state/select";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { Age, Chips, type Mark, MarkIcon, Panel } from "../parts";
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
}

export function TokenPanel({ tokens, lends, changed }: Shown) {
  const { state } = useApp();
  const [ended, setEnded] = useState(false);
  const at = serverTime(state.value, now.value);
  const sorted = sortedTokens(tokens, at);
  const over = sorted.filter((one) => isOver(tokenState(one, at))).length;
  const shown = ended ? sorted : sorted.filter((one) => !isOver(tokenState(one, at)));
  return (
    <Panel title="Tokens" aside={<CreateToken tokens={tokens} lends={lends} changed={changed} />} class="tokens">
      <div class="table-wrap">
        <table class="list token-list">
          <caption class="sr">Tokens</caption>
          <thead>
            <tr>
              <th scope="col">Token</th>
              <th scope="col" class="w-scopes">
                May
              </th>
              <th scope="col" class="w-limits">
                Limits
              </th>
              <th scope="col" class="w-time">
                Used
              </th>
              <th scope="col" class="w-time">
                Until
              </th>
              <th scope="col" class="w-act">
                <span class="sr">Revoke</span>
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
      {over > 0 && (
        <p class="more">
          <button class="text-btn" type="button" onClick={() => setEnded(!ended)}>
            {ended ? "Hide those that ended" : `Show ${count(over, "token")} that ended`}
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
    most ? `${held.value} ${held.unit} of ${most.value} ${most.unit}` : token.memory_bytes > 0 && `holds ${held.value} ${held.unit}`,
    calls_per_s !== null && `${figure(calls_per_s)} calls/s`,
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
  return (
    <tr class={isOver(how) ? "over" : undefined}>
      <th scope="row">
        <b>{token.name}</b>
        <span class="small faint code"> {token.token_id}</span>
        {own && <span class="small faint"> this login</span>}
        <span class={`small token-state ${tone}`}>
          <MarkIcon mark={mark} /> {how}
          {token.sessions > 0 && `, ${count(token.sessions, "session")}`}
        </span>
      </th>
      <td data-name="May">
        <Chips items={token.scopes} />
      </td>
      <td data-name="Limits" class="quiet">
        {limitsOf(token) || <span class="faint">none of its own</span>}
      </td>
      <td data-name="Used" class="quiet">
        {token.last_used_at ? <Age at={token.last_used_at} /> : "never"}
      </td>
      <td data-name="Until" class={how === "expires soon" ? "warm" : "quiet"} title={fullTime(end)}>
        {day(end)}
      </td>
      <td class="list-act">
        {!isOver(how) && (
          <AskButton
            word="Revoke"
            busyWord="Revoking"
            label={`Revoke ${token.name}, ${token.token_id}`}
            title={`Revoke ${token.name}?`}
            confirm="Revoke"
            why={obstacle(state.value)}
            run={async () => {
              const refusal = await revokeToken(server, token.token_id);
              if (!own) changed();
              return refusal;
            }}
          >
            <p>
              Whoever uses it is cut off at once: {count(token.sessions, "open session")} {token.sessions === 1 ? "ends" : "end"}
              {token.memory_bytes > 0 && `, and what it holds (${memory(token.memory_bytes).value} ${memory(token.memory_bytes).unit}) is freed`}.
              It cannot be undone; make a new one instead.
            </p>
            {children.length > 0 && (
              <p>
                With it {count(children.length, "token")} made with it {children.length === 1 ? "ends" : "end"}:{" "}
                {children.map((one) => one.name).join(", ")}.
              </p>
            )}
            {own && (
              <p class="warm">
                <MarkIcon mark="throttled" /> It is the token that this page is logged in with.
              </p>
            )}
          </AskButton>
        )}
      </td>
    </tr>
  );
}
