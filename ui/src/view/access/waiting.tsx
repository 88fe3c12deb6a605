/* Machines that asked to join and wait for a person. */
import { approveNode, refuseNode } from "../../command/access";
import type { WaitingNode } from "../../lib/api.gen";
import { count, memory } from "../../lib/format";
import { obstacle } from "../../state/select";
import { plural, t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { Age, MarkIcon, Panel } from "../parts";

const spaced = (code: string): string => `${code.slice(0, 3)} ${code.slice(3)}`;

export function WaitingPanel({ waiting, changed }: { waiting: readonly WaitingNode[]; changed: () => void }) {
  if (waiting.length === 0) return null;
  return (
    <Panel
      title={
        <>
          <MarkIcon mark="throttled" class="warm" /> {plural(waiting.length, t`${count(waiting.length, "machine")} asks to join`, t`${count(waiting.length, "machine")} ask to join`)}
        </>
      }
      label={t`Machines that ask to join`}
      class="waiting-nodes"
    >
      <ul>
        {waiting.map((one) => (
          <Waiting key={one.node_id} node={one} changed={changed} />
        ))}
      </ul>
    </Panel>
  );
}

function Waiting({ node, changed }: { node: WaitingNode; changed: () => void }) {
  const { state, server } = useApp();
  const why = obstacle(state.value);
  const ram = node.memory_bytes === null ? null : memory(node.memory_bytes);
  const facts = [node.cpu_model, ram && `${ram.value} ${ram.unit}`, node.os, node.arch].filter(Boolean).join(", ");
  return (
    <li class="waiting-node">
      <div class="waiting-what">
        <b class="clip">{node.name}</b>
        <span class="small quiet">
          {tx`${facts}${facts && "; "}from ${node.peer}, exogpu ${node.version},`}{" "}<Age at={node.requested_at} />
        </span>
        {node.known && (
          <span class="small warm">
            {t`A machine with this id belongs to the cluster already; letting this one in replaces it.`}
          </span>
        )}
      </div>
      <p class="waiting-code">
        <span class="label">{t`Code`}</span>
        <output>{node.code ? spaced(node.code) : "…"}</output>
      </p>
      <div class="acts">
        <AskButton
          word={t`Let in`}
          busyWord={t`Letting in`}
          label={t`Let ${node.name} in`}
          title={node.code ? t`Does ${node.name} show ${spaced(node.code)}?` : t`Does ${node.name} show a code?`}
          confirm={t`The same: let it in`}
          class="primary"
          why={why ?? (node.code ? null : t`It has not shown its code yet.`)}
          run={async () => {
            const refusal = await approveNode(server, node.node_id, node.code ?? "");
            changed();
            return refusal;
          }}
        >
          <p>
            {tx`Look at the terminal where ${<code>exogpu node</code>} runs on ${node.host_name}. If it shows another code, somebody stands between this server and that machine: turn it away.`}
          </p>
        </AskButton>
        <AskButton
          word={t`Turn away`}
          busyWord={t`Turning away`}
          label={t`Turn ${node.name} away`}
          title={t`Turn ${node.name} away?`}
          confirm={t`Turn away`}
          class=""
          why={why}
          run={async () => {
            const refusal = await refuseNode(server, node.node_id);
            changed();
            return refusal;
          }}
        >
          <p>{t`It may ask again, with another code.`}</p>
        </AskButton>
      </div>
    </li>
  );
}
