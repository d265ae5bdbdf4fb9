module github.com/linkreel/linkreel/libs/client

go 1.26.0
