/* The list of things that need attention, worst first: what happened, what still works, what to do. Hidden when empty. */
import { count } from "../../lib/format";
import { type Attention, attention, worstLevel } from "../../state/attention";
import { isLive } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Age, MarkIcon } from "../parts";

const SHOWN = 5;

export function AttentionPanel() {
  const { state } = useApp();
  const found = attention(state.value);
  if (found.length === 0) return null;
  const worst = worstLevel(found)!;
  return (
    <section class={`panel alert ${worst} ${isLive(state.value) ? "" : "stale"}`} aria-label={t`Needs attention`}>
      <div class="panel-head">
        <span class="state" data-state={worst === "error" ? "offline" : "throttled"}>
          <MarkIcon mark={worst === "error" ? "offline" : "throttled"} />
          <h2>{t`${count(found.length, "thing wants", "things want")} attention`}</h2>
        </span>
      </div>
      <ul>
        {found.slice(0, SHOWN).map((one) => (
          <Item one={one} key={one.key} />
        ))}
      </ul>
      {found.length > SHOWN && (
        <p class="more small faint">{t`and ${found.length - SHOWN} more, once these are done`}</p>
      )}
    </section>
  );
}

function Item({ one }: { one: Attention }) {
  return (
    <li>
      <p class="lead">{one.title}</p>
      <p class="quiet">{one.text}</p>
      <p class="small foot">
        <a class="link" href={one.href} aria-label={`${one.open}: ${one.title}`}>
          {one.open}
        </a>
        {one.since && (
          <span class="faint">
            <Age at={one.since} />
          </span>
        )}
      </p>
    </li>
  );
}
