/* Lists whose elements know what points at them, so that one is put in and taken out in one step. An element has two
 * members, `struct T *next, **link;`; the list is a `struct T *`, its newest element first. `link` stands for the
 * member's name: some structs call it otherwise. The arguments are evaluated several times. Thread: the list's. */
#pragma once

// Put it before the others.
#define LIST_PUSH(list, element, link) \
	do { \
		(element)->next = *(list); \
		(element)->link = (list); \
		if ((element)->next) \
			(element)->next->link = &(element)->next; \
		*(list) = (element); \
	} while (0)

// Take it out; `next` stays as it is. The element may be named by what points at it, such as the list itself.
#define LIST_REMOVE(element, link) \
	do { \
		if ((element)->next) \
			(element)->next->link = (element)->link; \
		*(element)->link = (element)->next; \
	} while (0)
