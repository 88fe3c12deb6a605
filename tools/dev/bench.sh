# What ./dev bench measures, and the check of its arguments before anything is built. Sourced by ./dev.
#
# A bench is a line of bench_list: its name, whether it runs with others of its kind (together) or by itself (alone), and its options:
# --NAME=N takes a whole number, --NAME=TEXT a text, --NAME nothing; or what else it takes, which it checks itself.

bench_list() {
	cat <<'EOF_LIST'
fanout together
start together
node together
device together
transfer together
tls together
remote together
audit together
clients together
abuse together --busy=N --rounds=N --only=TEXT
reliability together
decode alone [BACKEND SHAPE FORMAT [ROUNDS]]
perplexity alone [BACKEND[,BACKEND] FILE.gguf ...]
serving alone [BACKEND] [SHAPE:FORMAT ...]
ring alone [FORMAT[:LAYERS] ...]
cluster alone [split|wire|hop|kill|pair ...]
speculate alone --draft=TEXT --delay=N --rounds=N --prompts=N --tokens=N --cpus=N
grammar alone [FILE.gguf|TOKENS ...]
solver alone [SECONDS | cpsat [CLUSTERS]]
store alone [SECONDS [ROUNDS]]
soak alone --hours=N --minutes=N --sample=N
simulation alone [FIRST_SEED [SEEDS]]
fuzz alone --runs=N --seconds=N --jobs=N --list --keep
faults alone --list --keep
EOF_LIST
}

bench_text() { # NAME
	case $1 in
	fanout) echo 'events to 1,000 subscribers, beside a bare send() and nginx with nchan (not installed for you)' ;;
	start) echo 'how long the server takes to start, with nothing and with 30 days of history' ;;
	node) echo 'what a watched node costs its machine' ;;
	device) echo 'how fast the devices are through libexogpu, beside the makers'"'"' data sheets' ;;
	transfer) echo 'bytes to and from a device through the API, plain and by TLS; transfer:DEVICE names one' ;;
	tls) echo 'TLS handshakes, and bytes over one connection' ;;
	remote) echo 'a device of another machine beside one of this machine' ;;
	audit) echo 'what the audit log costs: audited changes a second, verification of a million entries' ;;
	clients) echo 'memory of idle clients, log-ins and calls a second' ;;
	abuse)
		cat <<'EOF_TEXT'
what a good client notices while others attack

  --busy N            N processes beside it that only compute
  --rounds N          rounds of each attack (default 3); figures are medians
  --only TEXT[|TEXT]  attacks whose name holds one of these texts

Under `taskset -c LIST` server, client and attackers keep to those processors.
EOF_TEXT
		;;
	reliability) echo 'what the tests try a part of, tried whole: kills, faults at every call, every bit; hours, only when asked for' ;;
	decode) echo 'models on a device; without arguments the 1.1B shape on the CPU' ;;
	perplexity) echo 'what number formats, or a chain of devices, cost a model' ;;
	serving) echo 'what the server makes of models; ten minutes' ;;
	ring) echo 'a model in two parts beside one worker, of the 1.1B shape' ;;
	cluster) echo 'a model on several machines, in network namespaces; as root' ;;
	speculate)
		cat <<'EOF_TEXT'
foreseen tokens with SmolLM2's published weights: of the text, and of a draft model, which is its own first layers

  --draft N    layers of the draft (default 10; 0: none), or which of them: 0-5,24-29
  --delay N    two halves on two nodes with N ms of round trip between, in network namespaces; as root
  --rounds N   turns of each prompt (default 5), of which the median counts
  --prompts N  of each kind (default 20, which is all)
  --tokens N   of an answer, at most (default 96)
  --cpus N     so many processors for each node
EOF_TEXT
		;;
	grammar) echo 'what answers in a form cost; vocabularies are of files or made up' ;;
	solver) echo 'how long placements take to be found; cpsat: beside OR-Tools, on random clusters' ;;
	store) echo 'a store in a PostgreSQL of its own beside one in SQLite: changes a second, and one at a time' ;;
	soak)
		cat <<'EOF_TEXT'
a server and nodes under everything that happens, for an hour: no more memory, descriptors or threads

  --hours N, --minutes N  for how long (together; an hour if neither is given)
  --sample N              seconds between the lines with memory, descriptors and threads (default 60)

Ctrl-C ends it early, with the table. The exit status is 1 if anything was wrong.
EOF_TEXT
		;;
	fuzz) echo 'each fuzz target to 10,000,000 runs, in as many sittings as it takes (builds the fuzz preset)' ;;
	faults) echo 'faults of the past, planted again one by one: the tests still find each' ;;
	simulation) echo 'a whole server under random faults, on a virtual clock, with simulated nodes: a verdict' ;;
	esac
}

bench_of() { # NAME, as NAME:DETAIL too: the line of the list, without the name; 1: there is none
	local name kind options
	while read -r name kind options; do
		if [ "$name" = "${1%%:*}" ]; then
			echo "$kind $options"
			return 0
		fi
	done < <(bench_list)
	return 1
}

bench_usage() { # NAME
	case $1 in
	fuzz) python3 -B tests/bench/fuzz.py --help ;;
	faults) bash tests/faults/run.sh --help ;;
	*) printf 'usage: ./dev bench %s\n\n%s\n' "$(bench_words "$1")" "$(bench_text "$1")" ;;
	esac
}

bench_words() { # NAME: with what it takes
	local options
	read -r _ options <<<"$(bench_of "$1")"
	options=$(sed -E 's/(--[a-z]+)=([A-Z]+)/[\1 \2]/g; s/(^| )(--[a-z]+)/\1[\2]/g' <<<"$options")
	echo "$1${options:+ $options}"
}

bench_refuse() { # NAME OR "", MESSAGE
	printf 'dev bench%s: %s; see: ./dev bench%s --help\n' "${1:+ $1}" "$2" "${1:+ $1}" >&2
	exit 2
}

# bench_check ARGUMENTS: prints a usage and exits where it is asked for; refuses what no bench understands.
bench_check() {
	local word name="" kind="" options="" found value
	[ $# -eq 0 ] || name=${1%%:*}
	while [ $# -gt 0 ]; do
		word=$1
		shift
		case $word in
		-h | --help)
			bench_of "$name" >/dev/null || name=""
			if [ -n "$name" ]; then bench_usage "$name"; else usage_bench; fi
			exit 0
			;;
		-*)
			[ -n "$kind" ] || bench_refuse "" "the bench comes first, before $word"
			case " $options " in
			*" $word=N "*) found=N ;;
			*" $word=TEXT "*) found=TEXT ;;
			*" $word "*) continue ;;
			*) bench_refuse "$name" "there is no option $word" ;;
			esac
			[ $# -gt 0 ] || bench_refuse "$name" "$word takes a value"
			value=$1
			shift
			[ $found = TEXT ] || [[ $value =~ ^[1-9][0-9]{0,11}$ || $word$value = --busy0 ]] ||
				bench_refuse "$name" "$word takes a whole number from 1 on, not $value"
			;;
		*)
			[[ $name != cluster || -z $kind || $word =~ ^(split|wire|hop|kill|pair)$ ]] || bench_refuse "$name" "there is no part $word"
			[ "$kind" != alone ] || continue
			found=$(bench_of "$word") || bench_refuse "" "there is no bench $word"
			[ -z "$kind" ] || [[ $found != alone* ]] || bench_refuse "" "$word runs by itself"
			kind=${found%% *}
			options="$options ${found#* }"
			;;
		esac
	done
}
