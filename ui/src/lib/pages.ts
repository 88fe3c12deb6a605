/* The pages that have an entry in the rail: name, address `#/page`, and the key that follows g. */
export const pages = [
  { page: "overview", name: "Overview", key: "o" },
  { page: "devices", name: "Devices", key: "d" },
  { page: "topology", name: "Topology", key: "t" },
  { page: "models", name: "Models", key: "m" },
  { page: "playground", name: "Playground", key: "p" },
  { page: "allocations", name: "Allocations", key: "a" },
  { page: "access", name: "Access", key: "k" },
  { page: "usage", name: "Usage", key: "s" },
  { page: "alerts", name: "Alerts", key: "e" },
  { page: "audit", name: "Audit", key: "u" },
  { page: "logs", name: "Logs", key: "l" },
] as const;
