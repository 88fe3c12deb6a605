/* Taking a machine out of the cluster, by an admin; and where one that waits is let in. */
import { removeNode } from "../../command/access";
import type { Node } from "../../lib/api.gen";
import { obstacle } from "../../state/select";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";

export function RemoveNode({ record }: { record: Node }) {
  const { state, server } = useApp();
  if (!state.value.login?.scopes.includes("admin") || record.local) return null;
  if (record.state === "pending")
    return (
      <p class="more">
        {tx`It waits to be let in: ${<a href="#/access">{t`compare its code`}</a>}.`}
      </p>
    );
  return (
    <div class="more">
      <AskButton
        word={t`Remove this machine`}
        busyWord={t`Removing`}
        label={t`Remove ${record.name}`}
        title={t`Remove ${record.name}?`}
        confirm={t`Remove`}
        why={obstacle(state.value)}
        run={() => removeNode(server, record.node_id)}
      >
        <p>
          {t`Its certificate is revoked and it is cut off at once. What sessions hold on its devices is lost, and its devices leave the list. To come back it must join again.`}
        </p>
      </AskButton>
    </div>
  );
}
