/* Commands for access: tokens, tickets, waiting nodes, certificates. */
import type { Certificate, Lend, Methods, Ticket, Token, WaitingNode } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

export interface Access {
  readonly tokens: readonly Token[];
  readonly tickets: readonly Ticket[];
  readonly lends: readonly Lend[];
  readonly waiting: readonly WaitingNode[];
  readonly certificates: readonly Certificate[];
}

export async function readAccess(server: Server): Promise<Access | Refusal> {
  let access: Access | null = null;
  const refusal = await tried(async () => {
    const [{ tokens }, { tickets }, { lends }, { waiting }, { certificates }] = await Promise.all([
      server.call("token.list", {}),
      server.call("ticket.list", {}),
      server.call("lend.list", {}),
      server.call("node.waiting", {}),
      server.call("certificate.list", {}),
    ]);
    access = { tokens, tickets, lends, waiting, certificates };
  });
  return refusal ?? access!;
}

export async function readTokens(server: Server): Promise<readonly Token[] | Refusal> {
  let tokens: readonly Token[] = [];
  const refusal = await tried(async () => void ({ tokens } = await server.call("token.list", {})));
  return refusal ?? tokens;
}

export type NewToken = Methods["token.create"]["params"];
export type MadeToken = Methods["token.create"]["result"];
export type MadeTicket = Methods["node.ticket"]["result"];
export type MadeLend = Methods["lend.create"]["result"];

/** The created object, or the error. */
export async function createToken(server: Server, params: NewToken): Promise<MadeToken | Refusal> {
  let made: MadeToken | null = null;
  const refusal = await tried(async () => (made = await server.call("token.create", params)));
  return refusal ?? made!;
}

export async function makeTicket(server: Server, params: Methods["node.ticket"]["params"]): Promise<MadeTicket | Refusal> {
  let made: MadeTicket | null = null;
  const refusal = await tried(async () => (made = await server.call("node.ticket", params)));
  return refusal ?? made!;
}

/** An address by which browsers join. Its url is in this answer and nowhere else. */
export async function makeLend(server: Server, params: Methods["lend.create"]["params"]): Promise<MadeLend | Refusal> {
  let made: MadeLend | null = null;
  const refusal = await tried(async () => (made = await server.call("lend.create", params)));
  return refusal ?? made!;
}

/** The percent of requests that are checked where browsers hold layers. */
export async function readCheckShare(server: Server): Promise<number | Refusal> {
  let percent = 0;
  const refusal = await tried(async () => void ({ check_percent: percent } = await server.call("lend.policy", {})));
  return refusal ?? percent;
}

export async function setCheckShare(server: Server, check_percent: number): Promise<number | Refusal> {
  let percent = 0;
  const refusal = await tried(async () => void ({ check_percent: percent } = await server.call("lend.policy_set", { check_percent })));
  return refusal ?? percent;
}

export const isRefusal = (outcome: object): outcome is Refusal => "what" in outcome && "hint" in outcome;

export const revokeToken = (server: Server, token_id: string) => tried(() => server.call("token.revoke", { token_id }));
export const revokeTicket = (server: Server, ticket_id: string) => tried(() => server.call("ticket.revoke", { ticket_id }));
/** Browsers that joined with it are cut off. */
export const revokeLend = (server: Server, lend_id: string) => tried(() => server.call("lend.revoke", { lend_id }));
/** `code`: the digits that were compared; whoever has asked in that node's place since is not let in. */
export const approveNode = (server: Server, node_id: string, code: string) =>
  tried(() => server.call("node.approve", { node_id, code }));
export const refuseNode = (server: Server, node_id: string) => tried(() => server.call("node.refuse", { node_id }));
export const removeNode = (server: Server, node_id: string) => tried(() => server.call("node.remove", { node_id }));
