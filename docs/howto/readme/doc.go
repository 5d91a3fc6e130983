// Command readme is the program of the README.
package main
