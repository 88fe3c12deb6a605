/* See arguments.h. */
#include "server/cli/arguments.h"

const struct flag arguments_common[] = {
	{"data", "DIR",
	 "the data directory of the server to ask\n"
	 "(default $EXOGPU_DATA, $XDG_DATA_HOME/exogpu, ~/.local/share/exogpu)",
	 offsetof(struct cli_arguments, data)},
	{"url", "URL",
	 "ask the server at this address instead, with the token in EXOGPU_TOKEN\n"
	 "(default $EXOGPU_URL, where no server runs on the data directory;\n"
	 "its port is 52415 if it has none)",
	 offsetof(struct cli_arguments, url)},
	{"ca", "FILE",
	 "for https: trust the authority whose certificate (PEM) this is; \"system\": the system's\n"
	 "(default $EXOGPU_CA, the data directory's tls/authority.pem, the system's authorities)",
	 offsetof(struct cli_arguments, ca)},
	{"json", NULL, "print the answer as JSON, in one line; an error too, to standard error",
	 offsetof(struct cli_arguments, json)},
	{"help", NULL, "this text", offsetof(struct cli_arguments, help)},
	{0},
};

enum status arguments_parse(struct cli_arguments *arguments, const struct flag *own, const char *operands, int argc,
			    char **argv, struct error *error)
{
	const struct flags flags = {.own = own,
				    .common = arguments_common,
				    .operands = operands,
				    .operand_offset = offsetof(struct cli_arguments, operand)};
	*arguments = (struct cli_arguments){0};
	return flags_read(&flags, arguments, argc, argv, error);
}
