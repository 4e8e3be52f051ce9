"""Small programs that get the pages of the URLs they are given, and print their texts. None knows of a proxy."""
