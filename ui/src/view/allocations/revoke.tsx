/* End whoever holds memory: their token, after asking. */
import { revokeToken } from "../../command/access";
import { count, memory } from "../../lib/format";
import { heldBy } from "../../state/allocations";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { MarkIcon } from "../parts";

export function RevokeButton({ token, holder, why }: { token: string; holder: string; why: string | null }) {
  const { state, server } = useApp();
  const held = heldBy(state.value.allocations, token);
  const size = memory(held.bytes);
  return (
    <AskButton
      word={t`Revoke`}
      busyWord={t`Revoking`}
      label={t`Revoke the token of ${holder}, ${token}`}
      title={t`Revoke ${holder}?`}
      confirm={t`Revoke`}
      why={why}
      run={() => revokeToken(server, token)}
    >
      <p>
        {t`Whoever uses it is cut off at once. All that it holds is freed: ${count(held.allocations, "allocation")} of ${size.value} ${size.unit} on ${count(held.devices, "device")}. Tokens made with it end, too. It cannot be undone; make a new one instead.`}
      </p>
      {state.value.login?.token_id === token && (
        <p class="warm">
          <MarkIcon mark="throttled" />{" "}{t`It is the token that this page is logged in with.`}
        </p>
      )}
    </AskButton>
  );
}
