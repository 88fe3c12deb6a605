/* Every limit on what grows or comes from outside, in one place: each buffer, queue and
 * table takes its maximum from here. server.info shows the limits that a client can
 * meet, under the names in LIMIT_LIST. docs/configuration.md gives the reason for each
 * value. */
#pragma once

//        name in C                    name in server.info            value
// clang-format off
#define LIMIT_LIST(X)                                                                    \
	X(LIMIT_HEAD_BYTES,            "head_bytes",                 1024 * 1024)        \
	X(LIMIT_BODY_BYTES,            "body_bytes",                 16 * 1024 * 1024)   \
	X(LIMIT_NESTING,               "nesting",                    32)                 \
	X(LIMIT_POST_BYTES,            "post_bytes",                 2 * 1024 * 1024)    \
	X(LIMIT_LOGIN_BYTES,           "login_bytes",                4096)               \
	X(LIMIT_LOGIN_MS,              "login_ms",                   5000)               \
	X(LIMIT_CONNECTIONS,           "connections",                4096)               \
	X(LIMIT_CONNECTIONS_OF_ADDRESS, "connections_of_address",    2048)               \
	X(LIMIT_STRANGERS,             "strangers",                  1024)               \
	X(LIMIT_HANDSHAKE_MS,          "handshake_ms",               5000)               \
	X(LIMIT_HTTP_HEAD_MS,          "http_head_ms",               5000)               \
	X(LIMIT_HTTP_BODY_MS,          "http_body_ms",               5000)               \
	X(LIMIT_HTTP_BYTES_PER_S,      "http_bytes_per_s",           1024)               \
	X(LIMIT_HTTP_IDLE_MS,          "http_idle_ms",               15000)              \
	X(LIMIT_HTTP_LEAVE_MS,         "http_leave_ms",              1000)               \
	X(LIMIT_ANSWER_STALL_MS,       "answer_stall_ms",            60000)              \
	X(LIMIT_CONNECTIONS_NOT_LOGGED_IN, "connections_not_logged_in", 64)              \
	X(LIMIT_NOT_LOGGED_IN_OF_ADDRESS, "not_logged_in_of_address", 32)                \
	X(LIMIT_LOGIN_FAILURES,        "login_failures",             5)                  \
	X(LIMIT_LOGIN_DELAY_MS,        "login_delay_ms",             4000)               \
	X(LIMIT_SEND_QUEUE_BYTES,      "send_queue_bytes",           4 * 1024 * 1024)    \
	X(LIMIT_SEND_QUEUE_MESSAGES,   "send_queue_messages",        4096)               \
	X(LIMIT_SESSIONS,              "sessions",                   8192)               \
	X(LIMIT_SESSIONS_OF_TOKEN,     "sessions_of_token",          2048)               \
	X(LIMIT_CALLS_IN_FLIGHT,       "calls_in_flight",            256)                \
	X(LIMIT_MESSAGES_PER_S,        "messages_per_s",             20000)              \
	X(LIMIT_IN_FLIGHT_BYTES_OF_TOKEN, "in_flight_bytes_of_token", 512 * 1024 * 1024) \
	X(LIMIT_ALLOCATIONS,           "allocations",                16384)              \
	X(LIMIT_ALLOCATIONS_OF_SESSION, "allocations_of_session",    1024)               \
	X(LIMIT_MODULES_OF_SESSION,    "modules_of_session",         64)                 \
	X(LIMIT_LAUNCH_MS,             "launch_ms",                  60000)              \
	X(LIMIT_REPLAY_EVENTS,         "replay_events",              4096)               \
	X(LIMIT_REPLAY_BYTES,          "replay_bytes",               4 * 1024 * 1024)    \
	X(LIMIT_HISTORY_ROWS,          "history_rows",               2000)               \
	X(LIMIT_TOKENS,                "tokens",                     10000)              \
	X(LIMIT_NODES,                 "nodes",                      1024)               \
	X(LIMIT_DEVICES,               "devices",                    4096)               \
	X(LIMIT_AUDIT_SEGMENT_ENTRIES, "audit_segment_entries",      1000000)            \
	X(LIMIT_AUDIT_SEGMENT_BYTES,   "audit_segment_bytes",        256 * 1024 * 1024)  \
	X(LIMIT_AUDIT_SEGMENT_DAYS,    "audit_segment_days",         30)                 \
	X(LIMIT_AUDIT_KEEP_DAYS,       "audit_keep_days",            3650)               \
	X(LIMIT_CONVERSATION_DAYS,     "conversation_days",          90)                 \
	X(LIMIT_CONVERSATION_BYTES,    "conversation_bytes",         1024 * 1024)        \
	X(LIMIT_CONVERSATIONS_OF_TOKEN, "conversations_of_token",    100)                \
	X(LIMIT_CONVERSATION_BYTES_OF_TOKEN, "conversation_bytes_of_token", 8 * 1024 * 1024) \
	X(LIMIT_PAUSE_MS,              "pause_ms",                   60000)              \
	X(LIMIT_LINE_TOKENS,           "line_tokens",                4 * 1024 * 1024)    \
	X(LIMIT_SESSION_GRACE_MS,      "session_grace_ms",           10000)              \
	X(LIMIT_CLIENT_PING_S,         "client_ping_s",              20)                 \
	X(LIMIT_CLIENT_SILENCE_S,      "client_silence_s",           30)                 \
	X(LIMIT_NODE_PING_S,           "node_ping_s",                3)                  \
	X(LIMIT_NODE_SILENCE_S,        "node_silence_s",             8)

// The limits that `serve --limit name=value` sets. docs/configuration.md lists the same ones.
//        name in C                     least     most               what for
#define LIMIT_CONFIGURABLE_LIST(X) \
	X(LIMIT_CONNECTIONS,               8,        LIMIT_CONNECTIONS, "of everyone; each takes files") \
	X(LIMIT_CONNECTIONS_OF_ADDRESS,    1,        LIMIT_CONNECTIONS, "the same, from one address") \
	X(LIMIT_STRANGERS,                 8,        LIMIT_CONNECTIONS, "of strangers, who get little") \
	X(LIMIT_ANSWER_STALL_MS,           1000,     600000,            "a client may take nothing of its answer") \
	X(LIMIT_CONNECTIONS_NOT_LOGGED_IN, 1,        LIMIT_CONNECTIONS, "of strangers that speak WebSocket") \
	X(LIMIT_NOT_LOGGED_IN_OF_ADDRESS,  1,        LIMIT_CONNECTIONS, "the same, from one address") \
	X(LIMIT_LOGIN_FAILURES,            1,        1000,              "that an address has before answers wait") \
	X(LIMIT_LOGIN_DELAY_MS,            0,        4500,              "that the answer to a failed log-in waits") \
	X(LIMIT_SESSIONS,                  1,        LIMIT_SESSIONS,    "of everyone; each takes memory") \
	X(LIMIT_SESSIONS_OF_TOKEN,         1,        LIMIT_SESSIONS,    "of one token that has no limit of its own") \
	X(LIMIT_CALLS_IN_FLIGHT,           1,        4096,              "of one connection, not answered yet") \
	X(LIMIT_MESSAGES_PER_S,            10,       1000000,           "of one connection, twice that at once") \
	X(LIMIT_IN_FLIGHT_BYTES_OF_TOKEN,  33554432, 68719476736,       "of one token's transfers") \
	X(LIMIT_ALLOCATIONS,               1,        LIMIT_ALLOCATIONS, "of everyone; they stand in memory") \
	X(LIMIT_ALLOCATIONS_OF_SESSION,    1,        LIMIT_ALLOCATIONS, "of one session: few large ones") \
	X(LIMIT_MODULES_OF_SESSION,        1,        4096,              "of one session") \
	X(LIMIT_CONVERSATION_DAYS,         0,        3650,              "a kept conversation stays; 0: none is kept") \
	X(LIMIT_PAUSE_MS,                  1000,     600000,            "requests wait while a model has no place") \
	X(LIMIT_LINE_TOKENS,               16,       LIMIT_LINE_TOKENS, "in lists, of prompts that wait for a model") \
	X(LIMIT_AUDIT_SEGMENT_ENTRIES,     1000,     4000000,           "before the audit log archives them; or") \
	X(LIMIT_AUDIT_SEGMENT_BYTES,       1048576,  1073741824,        "of them; or") \
	X(LIMIT_AUDIT_SEGMENT_DAYS,        1,        366,               "from the first of them") \
	X(LIMIT_AUDIT_KEEP_DAYS,           1,        36500,             "archived entries stay; then only hashes do")

enum {
#define X(name, word, value) name = (value),
	LIMIT_LIST(X)
#undef X
	LIMIT_HTTP_HEADERS_BYTES = 8192,
	LIMIT_ANSWER_QUEUE_BYTES = LIMIT_BODY_BYTES, // of an answer to a POST, that its socket has not taken
	LIMIT_CHUNK_LINE_BYTES = 256,    // before a chunk of a POST's body: its size, and extensions
	LIMIT_CHUNK_FRAME_BYTES = 16384, // of such lines and trailers in all, and 8 for each byte of the body
	LIMIT_STAGED_TOLD = 8,           // how often the way of a device's copies may change within
	LIMIT_STAGED_TOLD_MS = 60000,    // so long
	LIMIT_HTTP_AHEAD_MS = 15000,     // that a body which came fast may rest
	LIMIT_HELLO_BYTES = 16384 + 256, // of a handshake of TLS, before it is looked into
	LIMIT_STORE_QUEUE = 8192,        // changes waiting for the store thread
	LIMIT_STORE_BATCH_ROWS = 16384,  // rows of one change
	LIMIT_STORE_GROUP = 256,         // changes in one commit
	LIMIT_STORE_CHANGES = 10000,     // rows kept of what happened to the inventory
	LIMIT_STORE_MINUTES = 16384,     // minute averages waiting for the store thread
	LIMIT_STORE_QUERIES = 256,       // history queries waiting for the reader thread
	LIMIT_LOOP_QUEUE = 65536,        // results waiting for the loop thread
	LIMIT_LOG_LINE_BYTES = 2048,
	LIMIT_LOG_LINES = 500,         // of the server's log and its nodes', kept to be asked for
	LIMIT_NODE_LINES_PER_MIN = 10, // of one node, taken into it
	LIMIT_ALERTS = 1000,           // kept, also after they were cleared
	LIMIT_USAGE_KEYS = 512,        // pairs of token, model and device that are counted apart in an hour, or a day
	LIMIT_USAGE_NAMES = 65536,     // of tokens, models and devices, that usage is kept under
	LIMIT_USAGE_ROWS = 2000,       // of one answer of usage.list
	LIMIT_ALERT_CHANNELS = 16,
	LIMIT_ALERT_OUTBOX = 500,      // of one channel, not delivered yet
	LIMIT_CONVERSATIONS = 8192,      // of everyone, with ids of deleted ones: they stand in memory,
	LIMIT_CONVERSATION_TOTAL_BYTES = 64 * 1024 * 1024, // and so do their encrypted texts
	LIMIT_RECENT_CHANGES = 50,
	LIMIT_DEVICES_PER_NODE = 1024,
	LIMIT_CLUSTER_LINKS = 16384, // directions between nodes that are kept: 128 nodes, each with all the others
	LIMIT_LINKS_TOLD = 256,  // of these, in one event, of which there is one a second
	LIMIT_LINK_PEERS = 256,  // other nodes that a node is told of
	LIMIT_NODE_REPORTS = 64, // reports of one node's devices that wait to be stored
	LIMIT_REGISTRY_BYTES = 32 * 1024 * 1024, // a node's memory of its devices
	LIMIT_PROBES_AT_ONCE = 16,               // workers that verify side by side
	LIMIT_WORKER_STDERR_BYTES = 4096,        // the last of what a worker printed
	LIMIT_WORKER_MESSAGE_BYTES = LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES + 8,
	LIMIT_SOCKET_PATH_BYTES = 107,
	LIMIT_STREAM_QUEUE_BYTES = 64 * 1024 * 1024, // to one worker, what its socket has not taken
	LIMIT_STREAM_QUEUE_PIECES = 16384,           // of messages, in the same queue
	LIMIT_STREAM_FULL_BYTES = 2 * 1024 * 1024,   // of a queue: who sends bulk is held back
	LIMIT_SHARED_BYTES = 16 * 1024 * 1024,       // of memory that a worker shares with the server
	LIMIT_SHARED_IDLE_MS = 2000,                 // that it is kept without being used
	LIMIT_WORKERS = 256,                         // of one node, for sessions
	LIMIT_SPARES = 16,                           // of one node: workers that wait for a session
	LIMIT_WORKER_CALLS = 512,                    // waiting in a worker
	LIMIT_RUN_NUMBERS = 32768,                   // of a compute.run, in its f32s together,
	LIMIT_RUN_NUMBER_BYTES = 80,                 // and what one takes while it waits
	LIMIT_COPY_TELL_MS = 500,                    // how far a copy is
	LIMIT_WORKER_CHANNELS = 16,                  // of one worker, to others of its session
	LIMIT_WORKER_DEVICES = 64,                   // open in one worker
	LIMIT_WORKER_PIECES = 32,                    // of host memory, that bodies to a device wait in
	LIMIT_WORKER_PIECE_BYTES = 256 * 1024,       // of one of them
	LIMIT_WORKER_STAGE_BYTES = 1024 * 1024,      // copied at a time from one device to another through the host
	LIMIT_WORKER_STEPS = 24,                     // enqueued in a device's stream; at most two points each
	LIMIT_STREAMS_OF_DEVICE = 64,                // open at once; a set of them is a word of 64 bits
	LIMIT_PEERS_OF_DEVICE = 64,                  // other devices that copies went to or came from
	LIMIT_MODULE_BYTES = 16 * 1024 * 1024,       // of a user's module
	LIMIT_CUDA_SOURCE_BYTES = 256 * 1024,        // of one in CUDA C, that a node compiles
	LIMIT_COMPILATIONS_OF_SESSION = 2,           // of such ones, at once
	LIMIT_SETTLE_MS = 10000,                     // destroying something waits this long for the work that uses it
	LIMIT_NODE_CALLS = 2048,                     // of the server, that one node has not answered yet
	LIMIT_NODE_CALLS_PER_S = 128,                // of a node elsewhere; for the rest of the second it is not read
	LIMIT_WORKER_START_MS = 60000,               // until a session's worker is ready: a GPU's first use is slow
	LIMIT_STREAMS_NOT_LINKED = 1024,             // of workers, that have not said whose they are
	LIMIT_STREAMS_NOT_LINKED_OF_TABS = 64,       // of them, that come from browsers
	LIMIT_STREAMS_NOT_LINKED_OF_TAB = 16,        // of these, from one address
	LIMIT_STREAMS_NOT_LINKED_OF_NODE = 256,      // of them, from one node: as many as it may have workers
	LIMIT_LEASE_MS = 5000,                       // a node that does not hear its server for so long is fenced
	LIMIT_RELAYS_OF_SESSION = 4,                 // copies between workers at once
	LIMIT_HOPS = 4096,                           // of rings, by way of the server
	LIMIT_SHARD_THREADS = 2,                     // that read and hash model files for nodes
	LIMIT_SHARD_READS = 8,                       // of one node, of pieces of 4 MiB, under way
	LIMIT_SHARD_RANGES = 2048,                   // of a file, that a part needs
	LIMIT_HOP_CONNECT_MS = 20000,                // until all hops of an instance are there
	LIMIT_CHECK_MS = 120000,                     // until the reference token is back: as LIMIT_STEP_MS
	LIMIT_DEATHS = 3,                            // of an instance's workers within LIMIT_DEATHS_MS: it has failed
	LIMIT_DEATHS_MS = 60000,
	LIMIT_AWAY_MS = 30000,                       // that an instance's worker waits for its node to come back
	LIMIT_REJOIN_MS = 30000,                     // that an instance waits for its devices after a start
	LIMIT_RETURN_MS = 2000,                      // before an instance is placed anew: a node may be back by then
	LIMIT_CACHE_FILE_BYTES = 64 * 1024 * 1024,   // of compiled kernels, on disk
	LIMIT_SPIRV_IDS = 1024 * 1024,               // of a module
	LIMIT_SPIRV_BINDINGS = 256,                  // numbers of bindings are below
	LIMIT_CPU_THREADS = 1024,                    // of the CPU back end, at work at once
	LIMIT_CPU_QUEUE = 256,                       // pieces of work in a stream of the CPU back end
	LIMIT_CSR_BYTES = 8192,                      // of a node's request for a certificate
	LIMIT_CERTIFICATE_NAMES = 100,               // of the server's certificate
	LIMIT_CERTIFICATE_FILE_BYTES = 256 * 1024,   // of a file with certificates or a key
	LIMIT_CERTIFICATES = 16384,                  // of nodes, that have not expired
	LIMIT_CERTIFICATES_ENDED = 256,              // revoked ones, that are still listed
	LIMIT_CERTIFICATES_OF_NODE = 4,              // that are good: a new one makes the oldest unknown
	LIMIT_TICKETS = 1000,                        // that are not long over
	LIMIT_LENDS = 200,                           // addresses for browser tabs, that are not long over
	LIMIT_TABS = 512,                            // browser tabs that have joined and may come back
	LIMIT_TAB_BYTES = 32 * 1024,                 // of one message of a tab, outside its workers' streams
	LIMIT_TAB_CALLS_PER_S = 32,                  // of a tab; for the rest of the second it is not read
	LIMIT_TAB_DEVICES = 4,                       // of one tab
	LIMIT_TAB_NEWS = 16,                         // of one tab, each an entry of the audit log, within
	LIMIT_TAB_NEWS_MS = 10000,
	LIMIT_WAITING_NODES = 16,                    // that asked to join and wait for a person
	LIMIT_WAITING_NODES_OF_ADDRESS = 4,          // of these, from one address
	LIMIT_JOIN_MS = 600000,                      // how long one waits
	LIMIT_JOIN_REQUESTS = 64,                    // of such, taken in that time, and from one address
	LIMIT_JOIN_REQUESTS_OF_ADDRESS = 16,
	LIMIT_RENEW_MS = 10000,                      // a node gets a new certificate this often at most
	LIMIT_RENEWALS = 256,                        // of nodes, remembered for that
	LIMIT_TOKENS_ENDED = 2000,                   // that are listed after they ended; the oldest are forgotten
	LIMIT_TOKENS_OF_OWNER = 100,                 // places of LIMIT_TOKENS that tokens cannot take by making others
	LIMIT_TOKEN_DEPTH = 16,                      // of tokens, each made with the one before
	LIMIT_TALLIES = 16384,                       // things that happen often, counted and not written yet
	LIMIT_TALLY_MS = 10000,                      // and for how long they are
	LIMIT_HEARD = 128,                           // services heard of by multicast
	LIMIT_HEARD_OF_SOURCE = 16,                  // of these, from one address
	LIMIT_HEARD_ADDRESSES = 16,                  // of one of them
	LIMIT_HEARD_PLACES = 16,                     // interfaces that one was heard on, by IPv4 and IPv6
	LIMIT_HEARD_RECORDS = 128,                   // of one packet, that are looked at
	LIMIT_HEARD_PACKETS_PER_S = 100,             // that are read; others are dropped unread
	LIMIT_WITNESS_MS = 10000,                    // between two heads that a witness is asked to sign
	LIMIT_LATE_ANSWERS = 8,                      // of one connection, to log-ins that failed
	LIMIT_ADDRESSES = 8192,                      // that connections came from, remembered
	LIMIT_LOGIN_FORGET_MS = 300000,              // an address that failed to log in is an honest one again
	LIMIT_VOCABULARY = 1024 * 1024,              // tokens of a model
	LIMIT_TOKEN_BYTES = 1024,                    // of the text of one
	LIMIT_MERGES = 4 * 1024 * 1024,              // of byte-level BPE
	LIMIT_TOKEN_COLLISIONS = 1024,               // of a vocabulary's texts in their table: an honest one has dozens
	LIMIT_TOKENIZE_BYTES = LIMIT_BODY_BYTES,     // of one text; positions in it are 32 bits
	LIMIT_NORMALIZED_BYTES = 2 * LIMIT_TOKENIZE_BYTES, // of it, once SentencePiece's table has rewritten it
	LIMIT_CHARSMAP_BYTES = 16 * 1024 * 1024,     // of that table: published ones have 0.3 MB
	LIMIT_CHARSMAP_TEXT_BYTES = 1024,            // of a text in its place: published ones have tens
	LIMIT_CHARSMAP_KEY_BYTES = 64,               // of a text that it rewrites: published ones have 20
	LIMIT_JINJA_TEMPLATE_BYTES = 256 * 1024,     // of a model's chat template
	LIMIT_JINJA_TEXT_BYTES = LIMIT_TOKENIZE_BYTES, // that one makes, on its way too
	LIMIT_JINJA_MEMORY = 256 * 1024 * 1024,      // of one rendering
	LIMIT_JINJA_STEPS = 50 * 1000 * 1000,        // of it: about two seconds
	LIMIT_JINJA_DEPTH = 400,                     // of what is nested in it, calls of macros too
	LIMIT_JINJA_RANGE = 100000,                  // as Jinja's sandbox has it
	LIMIT_MODELS = 1024,                         // that are known
	LIMIT_MODEL_HEADER_BYTES = 256 * 1024 * 1024, // of a model file, before its data
	LIMIT_INSTANCE_STAGES = 64,                  // of one model instance
	LIMIT_INSTANCE_ORDERS = 64,                  // calls that wait in its worker
	LIMIT_RING_MESSAGES = 256,                   // that wait in a part of it, from the previous part or to the next
	LIMIT_RING_BYTES = 64 * 1024 * 1024,         // of them, from the previous part; the rest stays in the socket
	LIMIT_INSTANCE_REQUESTS = 1024,              // of it, that have not ended
	LIMIT_INSTANCE_TOKENS = 64 * 1024 * 1024,    // of their prompts together
	LIMIT_INSTANCE_QUEUE_BYTES = 4 * 1024 * 1024, // to the server; what is longer holds its steps up
	LIMIT_STEP_MS = 120000,                      // of a model, on a slow processor
	LIMIT_STOP_STRINGS = 16,                     // of a request
	LIMIT_PROMPT_TOKENS = 1024 * 1024 + 16,      // of one prompt, before its length is compared with the context
	LIMIT_ECHO_BYTES = 1024 * 1024,              // of a prompt that is told back
	LIMIT_INSTANCES = 64,                        // of models, those that failed too
	LIMIT_DISCOVERY_MS = 60 * 1000,              // that devices of the server's own machine are looked for
	LIMIT_DISCOVERY_WAIT_MS = 5000,              // that placements wait for that
	LIMIT_PLACINGS = LIMIT_INSTANCES,            // placements that are searched for, or wait for it, of each kind
	LIMIT_PREVIEWS = 8,                          // of them, of one token
	LIMIT_CANDIDATES = 8,                        // idle instances that may be evicted for one that is placed
	LIMIT_LAYER_TIMES = 512,                     // measured times of layers that placements look at
	LIMIT_LOAD_STALL_MS = 300000,                // an instance that loads and says nothing for so long has failed
	LIMIT_FETCH_SILENCE_MS = 30000,              // the same where it only waits for nodes that fetch
	LIMIT_FETCH_TELL_MS = 5000,                  // a node that fetches a model tells of it at least this often
	LIMIT_REQUESTS_OF_INSTANCE = 384,            // running and waiting; fewer than calls that may wait in a worker
	LIMIT_BODIES_BYTES = 64 * 1024 * 1024,       // of requests to /v1 that wait to be read, in all
	LIMIT_BODY_AT_ONCE_BYTES = 64 * 1024,        // of one that is read by the loop itself
	LIMIT_AUDIT_DETAIL_BYTES = 8192,             // of the entry of a request
	LIMIT_ALL_CHOICES = 524288,                  // the same and their alternatives, of all answers together
	LIMIT_ANSWER_CHOICES = 16384,                // tokens with log-probabilities that wait for their client
	LIMIT_EMBEDDINGS = 2048,                     // inputs of one request
	LIMIT_BIASES = 300,                          // tokens with a bias, of one request
	LIMIT_SEVERAL = 128,                         // choices of one answer: prompts, times n
	LIMIT_STOPS = 16,                            // stop strings of one request
	LIMIT_MODEL_FILE_GIB = 4096,                 // of a model file that is fetched
	LIMIT_FETCHES = 2,                           // downloads at once; others wait
	LIMIT_FETCH_CONNECTIONS = 4,                 // of one download
	LIMIT_FETCH_CONNECTIONS_ALL = 24,            // of downloads and searches
	LIMIT_FETCH_REDIRECTS = 8,                   // of one question
	LIMIT_FETCH_HEADER_BYTES = 64 * 1024,        // of one question's answers
	LIMIT_FETCH_JSON_BYTES = 8 * 1024 * 1024,    // of one answer of a hub
	LIMIT_FETCH_WAIT_S = 600,                    // that a server may ask to wait
	LIMIT_FETCH_FAILURES = 8,                    // one after the other, with next to nothing in between
	LIMIT_FETCH_RESTARTS = 3,                    // of a download whose file changes under it
	LIMIT_FETCH_SPANS = 64,                      // ranges of a file that are there, with gaps between
	LIMIT_FETCH_RESERVE_MIB = 256,               // of the disk, that downloads leave free
	LIMIT_UPLOADS = 8,                           // models that are being uploaded
	LIMIT_UPLOAD_PIECE_BYTES = 4 * 1024 * 1024,  // of one piece
	LIMIT_UPLOAD_WRITES = 4,                     // pieces of one upload that wait for the disk
	LIMIT_UPLOAD_DAYS = 7,                       // without a piece, then what is there is deleted
	LIMIT_BROWSES = 8,                           // looks into folders, under way
	LIMIT_BROWSE_ENTRIES = 1000,                 // of a folder that are shown
	LIMIT_BROWSE_SCAN = 20000,                   // of a folder that are looked at
	LIMIT_HUB_FILES = 512,                       // of one repository
	LIMIT_HUB_FOUND = 100,                       // models of one search
	LIMIT_SEARCHES = 8,                          // at once
	LIMIT_SEARCH_MS = 8000,                      // of one
	LIMIT_LOST_IDS = 1024,                       // of a session, that are answered device_lost instead of not_found
	LIMIT_MODEL_PARTS = 256,                     // files of a model that was split
	LIMIT_MODEL_TENSORS = 65536,                 // of a model file
	LIMIT_MODEL_KEYS = 65536,                    // of its metadata
	LIMIT_MODEL_LAYERS = 512,                    // of a model; so that no product of two of its sizes overflows
	LIMIT_MODEL_WIDTH = 65536,                   // of its embedding, and within its feed-forward
	LIMIT_MODEL_HEADS = 512,
	LIMIT_MODEL_EXPERTS = 1024,
	LIMIT_MODEL_EXPERTS_USED = 64,                // by one token
	LIMIT_MODEL_HEAD_SIZE = 512,
	LIMIT_MODEL_LATENT = 640,                    // a latent with the key that turns
	LIMIT_MODEL_VOCABULARY = 1024 * 1024,
	LIMIT_MODEL_CONTEXT = 16 * 1024 * 1024,
	LIMIT_MODEL_PIECE_BYTES = 4 * 1024 * 1024,   // of a model file, that a node fetches and checks at a time
	LIMIT_MODEL_PIECES = 2 * 1024 * 1024,        // of one model, in a node's cache
	LIMIT_MODEL_FETCHES = 64,                    // of a node, under way and waiting
	LIMIT_MODEL_PEERS = 8,                       // other nodes that a node is told to have some of it
	LIMIT_MODEL_PEER_RANGES = 256,               // of all of them, in one message
	LIMIT_MODEL_PEER_MS = 20000,                 // for a piece from another node; then the server is asked
	LIMIT_MODEL_HOLDERS = 256,                   // a model at a node: what the server remembers of who has what
	LIMIT_PEERS_NOT_OPEN = 32,                   // handshakes of other nodes under way, at one node
	LIMIT_PEERS_NOT_MET = 32,                    // of these, that have not said who they are
	LIMIT_LINK_ADDRESSES = 64,                   // where another node may be
	LIMIT_LINK_SILENCE_MS = 8000,                // of another node, then the link is down
	LIMIT_LINK_CALLS_PER_S = 2048,               // of another node; messages of hops do not count
	LIMIT_LINK_HOPS = 256,                       // of one link
	LIMIT_LINK_ASKS = 64,                        // hops that the other node opens and this one was not told of yet
	LIMIT_LINK_ASK_MS = 10000,                   // and how long they wait for it
	LIMIT_LINK_READ_BYTES = 512 * 1024,          // of a model file, that a node sends another at a time
	LIMIT_LINK_READS = 8,                        // of these, under way at a node for all others
	LIMIT_LINK_READS_PER_S = 4096,               // that a node asks for
	LIMIT_LINK_READ_MS = 8000,                   // until one must be there
	LIMIT_HOP_AHEAD_BYTES = 16 * 1024 * 1024,    // of a hop, sent and not taken yet by the other node's worker
};
// clang-format on
