/* Sends ranges of the cache to other nodes: see models.h. Only models that the server had this node fetch, and only
 * ranges that were checked since the node started. The cache's thread reads them, a job for each request; there are at
 * most LIMIT_LINK_READS, because the links accept no more. */
#include "engine/node/models/models_inside.h"

#include <stdlib.h>

void node_models_give(struct node_models *models, struct link_request *request)
{
	struct error error = {0};
	struct model *model = node_models_find(models, request->model_id);
	struct disk_job *job = model ? malloc(sizeof(*job)) : NULL;
	struct net_frame *bytes = job ? net_frame_alloc(request->bytes) : NULL;
	if (!bytes) {
		free(job);
		error_set(&error, model ? STATUS_UNAVAILABLE : STATUS_NOT_FOUND, "this node %s",
			  model ? "is out of memory" : "has nothing of the model");
		link_request_answer(&request, NULL, &error);
		return;
	}
	*job = (struct disk_job){.kind = JOB_GIVE,
				 .model = model,
				 .request = request,
				 .piece = {.at = {request->offset, request->bytes}},
				 .bytes = bytes};
	node_models_put_job(models, job);
}

void node_models_gave(struct disk_job *job)
{
	link_request_answer(&job->request, job->bytes, job->error.status ? &job->error : NULL);
}
