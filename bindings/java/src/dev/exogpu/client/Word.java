package dev.exogpu.client;

/** A value of an enum of the contract. */
interface Word {
	/** As it is sent; null: one that this client does not know. */
	String word();
}
