module github.com/linkreel/linkreel/services/videos

go 1.26.0

require github.com/linkreel/linkreel/libs v0.0.0

replace github.com/linkreel/linkreel/libs => ../../libs
