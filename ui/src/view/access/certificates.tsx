/* Certificates: the authority that everything rests on, the server's, those of nodes; with their ends. */
import { useState } from "preact/hooks";
import type { Certificate } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fits } from "../../lib/fits";
import { day, fullTime } from "../../lib/format";
import { nodeHref } from "../../lib/route";
import { type CertificateState, certificateState, certificateWords, commonName, fingerprint } from "../../state/access";
import { serverTime } from "../../state/select";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { CopyId } from "../command-line";
import { type Mark, MarkIcon, NothingFits, Panel } from "../parts";

const kinds: Record<Certificate["kind"], string> = {
  authority: t`the cluster's authority`,
  server: t`this server`,
  own: t`this server, set by the operator`,
  node: "node",
};
const marks: Record<CertificateState, { mark: Mark; tone: string }> = {
  good: { mark: "ok", tone: "accent" },
  "renewal is due": { mark: "throttled", tone: "warm" },
  expired: { mark: "offline", tone: "crit" },
  revoked: { mark: "offline", tone: "" },
};

export function CertificatePanel({ certificates, filter }: { certificates: readonly Certificate[]; filter: string }) {
  const { state } = useApp();
  const [all, setAll] = useState(false);
  const at = serverTime(state.value, now.value);
  const nodeOf = ({ node_id }: Certificate): string | undefined => (node_id ? state.value.nodes[node_id]?.record.name : undefined);
  const fitting = certificates.filter((one) => fits(filter, certificateWords(one, nodeOf(one), at)));
  const shown = fitting.filter((one) => all || certificateState(one, at) !== "revoked");
  const authority = certificates.find((one) => one.kind === "authority");
  return (
    <Panel
      title={t`Certificates`}
      aside={
        authority && (
          <a href="/ca.pem" download="exogpu-authority.pem">
            {t`Download the authority's certificate`}
          </a>
        )
      }
    >
      <div class="table-wrap">
        <table class="list cert-list">
          <caption class="sr">{t`Certificates`}</caption>
          <thead>
            <tr>
              <th scope="col">{t`Of`}</th>
              <th scope="col">{t`Names`}</th>
              <th scope="col" class="w-print">
                SHA-256
              </th>
              <th scope="col" class="w-time">
                {t`Renews`}
              </th>
              <th scope="col" class="w-time">
                {t`Ends`}
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((one) => (
              <CertificateRow key={one.serial} certificate={one} at={at} />
            ))}
          </tbody>
        </table>
      </div>
      {fitting.length === 0 && filter !== "" && <NothingFits />}
      {shown.length < fitting.length && (
        <p class="more">
          <button class="text-btn" type="button" onClick={() => setAll(true)}>
            {t`Show those that were revoked`}
          </button>
        </p>
      )}
    </Panel>
  );
}

function CertificateRow({ certificate, at }: { certificate: Certificate; at: number }) {
  const { state } = useApp();
  const { kind, node_id, subject, names, sha256, renews_at, not_after } = certificate;
  const how = certificateState(certificate, at);
  const { mark, tone } = marks[how];
  const node = node_id ? state.value.nodes[node_id]?.record : undefined;
  return (
    <tr class={how === "revoked" || how === "expired" ? "over" : undefined}>
      <th scope="row">
        <b>{node_id ? <a href={nodeHref(node_id)}>{node?.name ?? node_id}</a> : commonName(subject)}</b>
        <span class="small faint"> {kinds[kind]}</span>
        <span class={`small token-state ${tone}`}>
          <MarkIcon mark={mark} /> {word(how)}
        </span>
      </th>
      <td data-name={t`Names`} class="quiet names">
        {names.length > 0 ? <span translate={false}>{names.join(", ")}</span> : <span class="faint">{t`none`}</span>}
      </td>
      <td data-name="SHA-256" class="small">
        <CopyId text={fingerprint(sha256)} title={fingerprint(sha256)}>
          {kind === "authority" ? fingerprint(sha256) : `${fingerprint(sha256).slice(0, 23)} …`}
        </CopyId>
      </td>
      <td data-name={t`Renews`} class="quiet">
        {renews_at ? day(Date.parse(renews_at)) : <span class="faint">{t`by hand`}</span>}
      </td>
      <td data-name={t`Ends`} class="quiet" title={fullTime(Date.parse(not_after))}>
        {day(Date.parse(not_after))} {new Date(not_after).getFullYear()}
      </td>
    </tr>
  );
}
