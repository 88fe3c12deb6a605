/* Allocations of one session on a device: a line for each, and one for the sum if there are several. */
import { useState } from "preact/hooks";
import { count, memory } from "../../lib/format";
import { isMasked, type Holding } from "../../state/allocations";
import { t } from "../../text/text";
import { CopyId } from "../command-line";
import { Age, Figure } from "../parts";
import { FreeButton } from "./free";
import { RevokeButton } from "./revoke";

/** Number of lines of a session that are shown at first. */
const LINES = 20;

export function HoldingRows({
  holding,
  labels,
  why,
}: {
  holding: Holding;
  labels: ReadonlyMap<string, string>;
  why: string | null;
}) {
  const [whole, setWhole] = useState(false);
  const { allocations, holder, token, bytes } = holding;
  const several = allocations.length > 1;
  const named = !isMasked(holding);
  const shown = whole ? allocations : allocations.slice(0, LINES);
  const who = (
    <>
      <b>{holder}</b> <span class="small faint">{token ? <CopyId text={token} /> : named && <span class="code">{t`by the Unix socket`}</span>}</span>
    </>
  );
  const revoke = token !== null && <RevokeButton token={token} holder={holder} why={why} />;
  return (
    <>
      {several && (
        <tr class="lent-sum">
          <th scope="rowgroup">{who}</th>
          <td />
          <td class="quiet">{count(allocations.length, "allocation")}</td>
          <td class="num">
            <Figure {...memory(bytes)} />
          </td>
          <td class="num quiet">
            <Age at={allocations[0]!.created_at} />
          </td>
          <td class="lent-act">
            <FreeButton allocations={allocations} word={t`Free all`} why={why} />
            {revoke}
          </td>
        </tr>
      )}
      {shown.map((one) => (
        <tr key={one.allocation_id} class={several ? "lent-one" : "lent-sum"}>
          <th scope="row">{several ? <span class="sr">{holder}</span> : who}</th>
          <td>{labels.get(one.allocation_id)}</td>
          <td class="faint">
            <CopyId text={one.allocation_id} />
          </td>
          <td class="num">
            <Figure {...memory(one.bytes)} />
          </td>
          <td class="num quiet">
            <Age at={one.created_at} />
          </td>
          <td class="lent-act">
            <FreeButton allocations={[one]} word={t`Free`} why={why} />
            {!several && revoke}
          </td>
        </tr>
      ))}
      {shown.length < allocations.length && (
        <tr class="lent-one">
          <td colSpan={6}>
            <button class="text-btn" type="button" onClick={() => setWhole(true)}>
              {t`Show all ${allocations.length}`}
            </button>
          </td>
        </tr>
      )}
    </>
  );
}
