/* The pages that have an entry in the rail: name, address `#/page`, and the key that follows g. */
import { t } from "../text/text";

export const pages = [
  { page: "overview", name: t`Overview`, key: "o" },
  { page: "devices", name: t`Devices`, key: "d" },
  { page: "topology", name: t`Topology`, key: "t" },
  { page: "models", name: t`Models`, key: "m" },
  { page: "playground", name: t`Playground`, key: "p" },
  { page: "allocations", name: t`Allocations`, key: "a" },
  { page: "access", name: t`Access`, key: "k" },
  { page: "usage", name: t`Usage`, key: "s" },
  { page: "alerts", name: t`Alerts`, key: "e" },
  { page: "audit", name: t`Audit`, key: "u" },
  { page: "logs", name: t`Logs`, key: "l" },
] as const;
