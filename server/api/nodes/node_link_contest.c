/* Two connections with one node's certificate: the node has come back while the server does not know yet that its
 * connection before is dead, or its certificate is in two places. See node_link_inside.h.
 *
 * Who came first is asked for a sign of life, and the other waits. If one comes, it keeps its place: the newcomer is
 * closed with 4409, which the log and the audit log tell with both addresses. If none comes within CONTEST_MS, or the
 * connection ends, the newcomer has the place. So a copy never takes the place of a node that runs, and a node whose
 * connection was cut waits for 2 s at most. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/api/nodes/node_link_inside.h"

#include <stdio.h>
#include <string.h>

enum { CONTEST_MS = 2000, LOOK_MS = 50, TOLD_MS = 60000 };

// The connection of the node that is registered, or is just being stored: without the latter, connections that come
// within one commit would throw out one another.
static struct node_link *holder_of(const struct node_link *link)
{
	struct node_link *other = link->all->links;
	while (other && (other == link || other->local || other->cut || !other->conn ||
			 (!other->known && !other->registering) || strcmp(other->node_id, link->proven) != 0))
		other = other->next;
	return other;
}

static void tell(struct node_link *link, struct node_link *holder)
{
	const int64_t now_ms = clock_steady_ms();
	char detail[2 * JOINING_PEER_BYTES + 64];
	if (holder->told_ms && now_ms - holder->told_ms < TOLD_MS)
		return;
	holder->told_ms = now_ms;
	log_warning("nodes",
		    "node %s: a second one with its certificate, from %s, is refused, since the first, from %s, is "
		    "there; if its folder was copied, give each machine its own; otherwise remove the node "
		    "and let it join again",
		    link->proven, link->peer, holder->peer);
	snprintf(detail, sizeof detail, "{\"refused\":\"%s\",\"stays\":\"%s\"}", link->peer, holder->peer);
	struct audit_actor by = {0};
	snprintf(by.actor, sizeof by.actor, "node:%s", link->proven);
	snprintf(by.name, sizeof by.name, "%s", holder->link.actor.name);
	snprintf(by.peer, sizeof by.peer, "%s", link->peer);
	audit_tell(link->all->params.audit, &(struct audit_tally){.by = &by,
								  .action = "node.duplicate",
								  .target = link->proven,
								  .node_id = link->proven,
								  .outcome = STATUS_CONFLICT,
								  .detail = detail});
}

static void admit(struct node_link *link)
{
	struct error error = {0};
	struct json *head = link->contest;
	struct message message = {.kind = MESSAGE_REQUEST,
				  .head = head,
				  .id = json_get(head, "id"),
				  .method = "node.register",
				  .params = json_get(head, "params")};
	link->contest = NULL;
	link->admitted = true;
	enum status status = node_link_register(link, &message, &error);
	if (status != STATUS_PENDING)
		rpc_answer(&link->rpc, message.method, message.id, NULL, &error);
	json_destroy(&head);
}

static void look(void *arg)
{
	struct node_link *link = arg, *holder = holder_of(link);
	const int64_t waited_ms = clock_steady_ms() - link->contest_ms;
	if (!link->conn || link->cut)
		return;
	if (holder && net_conn_silence_ms(holder->conn) < waited_ms) {
		tell(link, holder);
		net_conn_close(link->conn, NODE_CLOSE_SUPERSEDED, "another connection speaks for this node");
	} else if (holder && ++link->contest_looks < CONTEST_MS / LOOK_MS) { // so many turns, were this process held up
		net_conn_ping(holder->conn);                                 // unless one is under way
		net_timer_start(link->all->params.loop, &link->contested, LOOK_MS, look, link);
	} else {
		if (holder)
			log_info("nodes", "node %s is back from %s: its connection from %s is silent", link->proven,
				 link->peer, holder->peer);
		admit(link);
	}
}

enum status node_contest(struct node_link *link, const struct message *message, struct error *error)
{
	struct node_link *holder = link->local || link->known || link->admitted ? NULL : holder_of(link);
	if (link->contest)
		return error_set(error, STATUS_CONFLICT, "checking whether this node is already connected");
	if (!holder)
		return STATUS_OK;
	link->contest = json_copy(message->head);
	if (!link->contest)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	link->contest_ms = clock_steady_ms();
	link->contest_looks = 0;
	net_conn_ping(holder->conn);
	net_timer_start(link->all->params.loop, &link->contested, LOOK_MS, look, link);
	return STATUS_PENDING;
}

void node_contest_end(struct node_link *link)
{
	net_timer_stop(link->all->params.loop, &link->contested);
	json_destroy(&link->contest);
}
