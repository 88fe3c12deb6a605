/* PostgreSQL's client library, loaded when a store asks for it: nobody else needs to have it. The declarations are
 * those of its documented interface, of version 14 and newer. Thread: any. Inside server/store/postgres only. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

struct pg_conn;   // PGconn
struct pg_result; // PGresult
enum { PQ_CONNECTION_OK = 0 };
enum { PQ_COMMAND_OK = 1, PQ_TUPLES_OK = 2, PQ_FATAL_ERROR = 7, PQ_PIPELINE_SYNC = 10 };
enum { PQ_IDLE = 0, PQ_ACTIVE = 1, PQ_IN_TRANSACTION = 2, PQ_IN_ERROR = 3 };
enum { PQ_SEVERITY = 'S', PQ_SQLSTATE = 'C', PQ_MESSAGE = 'M' };
struct pq_option { // PQconninfoOption
	char *keyword, *envvar, *compiled, *val, *label, *dispchar;
	int dispsize;
};

#define LIBPQ_LIST(X) \
	X(int, PQlibVersion, (void)) \
	X(struct pq_option *, PQconninfoParse, (const char *conninfo, char **message)) \
	X(struct pq_option *, PQconndefaults, (void)) \
	X(void, PQconninfoFree, (struct pq_option * options)) \
	X(void, PQfreemem, (void *bytes)) \
	X(struct pg_conn *, PQconnectdbParams, (const char *const *keywords, const char *const *values, int expand)) \
	X(void, PQfinish, (struct pg_conn * conn)) \
	X(int, PQstatus, (const struct pg_conn *conn)) \
	X(int, PQtransactionStatus, (const struct pg_conn *conn)) \
	X(int, PQserverVersion, (const struct pg_conn *conn)) \
	X(const char *, PQparameterStatus, (const struct pg_conn *conn, const char *name)) \
	X(char *, PQerrorMessage, (const struct pg_conn *conn)) \
	X(char *, PQhost, (const struct pg_conn *conn)) \
	X(char *, PQport, (const struct pg_conn *conn)) \
	X(char *, PQdb, (const struct pg_conn *conn)) \
	X(int, PQsocket, (const struct pg_conn *conn)) \
	X(int, PQsetnonblocking, (struct pg_conn * conn, int on)) \
	X(int, PQflush, (struct pg_conn * conn)) \
	X(int, PQconsumeInput, (struct pg_conn * conn)) \
	X(int, PQisBusy, (struct pg_conn * conn)) \
	X(struct pg_result *, PQgetResult, (struct pg_conn * conn)) \
	X(int, PQsendQuery, (struct pg_conn * conn, const char *sql)) \
	X(int, PQsendPrepare, \
	  (struct pg_conn * conn, const char *name, const char *sql, int count, const unsigned *types)) \
	X(int, PQsendQueryPrepared, \
	  (struct pg_conn * conn, const char *name, int count, const char *const *values, const int *lengths, \
	   const int *formats, int result_format)) \
	X(int, PQsendQueryParams, \
	  (struct pg_conn * conn, const char *sql, int count, const unsigned *types, const char *const *values, \
	   const int *lengths, const int *formats, int result_format)) \
	X(int, PQenterPipelineMode, (struct pg_conn * conn)) \
	X(int, PQexitPipelineMode, (struct pg_conn * conn)) \
	X(int, PQpipelineSync, (struct pg_conn * conn)) \
	X(int, PQresultStatus, (const struct pg_result *result)) \
	X(char *, PQresultErrorField, (const struct pg_result *result, int field)) \
	X(char *, PQcmdStatus, (struct pg_result * result)) \
	X(void, PQclear, (struct pg_result * result)) \
	X(int, PQntuples, (const struct pg_result *result)) \
	X(unsigned, PQftype, (const struct pg_result *result, int column)) \
	X(int, PQgetisnull, (const struct pg_result *result, int row, int column)) \
	X(int, PQgetlength, (const struct pg_result *result, int row, int column)) \
	X(char *, PQgetvalue, (const struct pg_result *result, int row, int column)) \
	X(void *, PQsetNoticeProcessor, \
	  (struct pg_conn * conn, void (*tell)(void *context, const char *text), void *context))

struct libpq {
#define X(type, name, parameters) type(*name) parameters;
	LIBPQ_LIST(X)
#undef X
};

// Errors: STATUS_UNAVAILABLE, with a hint: it is not installed, or too old.
enum status libpq_load(const struct libpq **out, struct error *error);
